"""Summaries of runs that are small enough to be worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.profile.catalog import find_profile
from prfaas.reasons import Route
from prfaas.sim.record import ROUTES, Columns, Outcome
from prfaas.sim.scenario import Deployment
from prfaas.sim.summary import BINS, CURVE, Slo, Summary, summarise
from prfaas.sim.usage import LinkLog
from prfaas.throughput import PdCluster, PrefillCluster

NAN = math.nan
SLO = Slo(ttft_s=10.0, tpot_s=0.025)
DEPLOYMENT = Deployment(
    pd=PdCluster("pd", find_profile("paper-1t-h20"), 2, 1),
    remotes=(PrefillCluster("far", find_profile("paper-1t-h200"), 4, 1000.0),),
    layers=57,
)
OUTPUT_TOKENS = 101
#: 5000 bytes in the first ten seconds, 2000 of them in the last two.
LINKS = LinkLog(np.array([0.0, 8.0, 10.0, 30.0]), {"far": np.array([0.0, 3000.0, 5000.0, 5000.0])})

#: arrival, prefill start, prefill end, KV arrival, first token; decode takes 100 steps more.
PLAIN = (
    (0.0, 1.0, 3.0, 3.5, 4.0),
    (10.0, 10.0, 16.0, 16.5, 17.0),
    (20.0, 22.0, 24.0, 24.5, 24.525),
)


def columns_of(rows: Any, *, step_s: float = 0.025, **changed: Any) -> Columns:
    times = np.array(rows, dtype=float).T
    count = times.shape[1]
    columns = Columns(
        *times,
        finish_s=times[4] + step_s * (OUTPUT_TOKENS - 1),
        kv_bytes=np.zeros(count),
        prompt_tokens=np.full(count, 1000),
        uncached_tokens=np.full(count, 1000),
        output_tokens=np.full(count, OUTPUT_TOKENS),
        route=np.full(count, ROUTES.index(Route.LOCAL), dtype=np.int8),
        outcome=np.full(count, Outcome.ANSWERED, dtype=np.int8),
        attempts=np.ones(count, dtype=np.int8),
        region=np.zeros(count, dtype=np.int8),
    )
    arrays = {name: np.array(value) for name, value in changed.items()}
    return replace(columns, **arrays)


def summary_of(columns: Columns, **options: Any) -> Summary:
    options = {"slo": SLO, "links": LINKS, "warmup_share": 0.0} | options
    return summarise(columns, DEPLOYMENT, **options)


def test_latencies() -> None:
    found = summary_of(columns_of(PLAIN))
    assert found.ttft.mean == pytest.approx((4 + 7 + 4.525) / 3)
    assert found.ttft.p50 == pytest.approx(4.525)
    assert found.ttft.p90 == pytest.approx(4.525 + 0.8 * (7 - 4.525))
    assert found.ttft.p99 == pytest.approx(4.525 + 0.98 * (7 - 4.525))
    assert (found.tpot.mean, found.tpot.p95) == pytest.approx((0.025, 0.025))
    assert found.e2e.mean == pytest.approx(found.ttft.mean + 2.5)
    assert found.ttft_curve_s[[0, -1]] == pytest.approx([4.0, 7.0])
    assert len(found.ttft_curve_s) == len(CURVE)


def test_the_parts_of_ttft_add_up_to_it() -> None:
    found = summary_of(columns_of(PLAIN))
    parts = found.breakdown
    assert parts.queueing_s == pytest.approx((1 + 0 + 2) / 3)
    assert parts.prefill_s == pytest.approx((2 + 6 + 2) / 3)
    assert parts.transfer_s == pytest.approx(0.5)
    assert parts.decode_s == pytest.approx((0.5 + 0.5 + 0.025) / 3)
    total = parts.queueing_s + parts.prefill_s + parts.transfer_s + parts.decode_s
    assert total == pytest.approx(found.ttft.mean)


def test_rates_are_over_the_time_in_which_requests_came() -> None:
    found = summary_of(columns_of(PLAIN))
    assert found.offered_per_s == 3 / 20
    assert found.throughput_per_s == 2 / 20  # the last one ended after the last arrival
    assert found.goodput_per_s == 3 / 20


def test_a_request_is_good_only_with_both_latencies_in_their_limits() -> None:
    late = summary_of(columns_of(PLAIN), slo=Slo(ttft_s=6.0, tpot_s=0.025))
    assert late.attainment == pytest.approx(2 / 3)
    assert late.goodput_per_s == pytest.approx(2 / 20)
    slow = columns_of(PLAIN, step_s=0.026)
    assert summary_of(slow).attainment == 0
    assert summary_of(slow, slo=Slo(ttft_s=10, tpot_s=0.026)).attainment == 1


def test_the_warm_up_is_cut_by_arrival() -> None:
    found = summary_of(columns_of(PLAIN), warmup_share=0.25)
    assert found.counts.requests == 2
    assert found.offered_per_s == 2 / 15
    assert found.ttft.mean == pytest.approx((7 + 4.525) / 2)


def test_open_requests_count_with_what_they_have_waited() -> None:
    stuck = columns_of(
        (PLAIN[0], PLAIN[1], (20.0, 22.0, NAN, NAN, NAN)),
        outcome=np.array([1, 1, 0], dtype=np.int8),
    )
    found = summary_of(stuck, until_s=60.0)
    assert found.counts.open == 1
    assert found.attainment == pytest.approx(2 / 3)
    assert found.ttft_curve_s[-1] == 40
    assert found.e2e.p99 > 39
    assert found.tpot.mean == pytest.approx(0.025)
    assert found.series.requests["prefill"][-1] == pytest.approx(1)


def test_refused_requests_have_no_latency_and_are_not_good() -> None:
    # One at once, one when its first attempt had failed.
    refused = columns_of(
        (PLAIN[0], (5.0, NAN, NAN, NAN, NAN), (6.0, 6.0, 7.0, 8.0, NAN), PLAIN[1]),
        outcome=np.array([1, 2, 2, 1], dtype=np.int8),
    )
    found = summary_of(refused, until_s=100.0)
    assert (found.counts.answered, found.counts.refused, found.counts.open) == (2, 2, 0)
    assert found.attainment == pytest.approx(1 / 2)
    assert found.ttft.mean == pytest.approx(5.5)
    held_s = sum(float(stage.sum()) for stage in found.series.requests.values())
    answered_s = 2 * (found.ttft.mean + 2.5)
    assert held_s * found.series.edges_s[1] == pytest.approx(answered_s)


def test_a_run_in_which_all_is_refused_says_so() -> None:
    rows = [(at, NAN, NAN, NAN, NAN) for at in (0.0, 1.0)]
    found = summary_of(columns_of(rows, outcome=np.array([2, 2], dtype=np.int8)))
    assert math.isnan(found.ttft.mean)
    assert found.goodput_per_s == found.throughput_per_s == 0
    assert found.utilisation.pd_prefill == found.utilisation.pd_decode == 0


def test_utilisation_of_the_stages() -> None:
    rows = ((0.0, 0.0, 10.0, 10.0, 10.025), (10.0, 10.0, 15.0, 15.0, 15.025), (20.0,) * 5)
    found = summary_of(columns_of(rows, region=np.array([0, 1, 0], dtype=np.int8)))
    assert found.utilisation.pd_prefill == pytest.approx(10 / (2 * 20))
    assert found.utilisation.prfaas_prefill == pytest.approx(5 / (4 * 20))
    # Twice 101 steps of 25 ms, in one of 20 places; what begins at 20 s is past the end.
    assert found.utilisation.pd_decode == pytest.approx(2 * 2.525 / (20 * 20))
    assert found.offload_fraction == pytest.approx(1 / 3)


def test_a_batch_keeps_its_instance_busy_once() -> None:
    rows = ((0.0, 0.0, 10.0, 10.0, 10.025), (0.0, 0.0, 10.0, 10.0, 10.025), (20.0,) * 5)
    batched = replace(DEPLOYMENT, batch_tokens=4096)
    found = summarise(columns_of(rows), batched, slo=SLO, links=LINKS, warmup_share=0)
    assert found.utilisation.pd_prefill == pytest.approx(10 / (2 * 20))
    assert summary_of(columns_of(rows)).utilisation.pd_prefill == pytest.approx(20 / (2 * 20))


def test_link_use() -> None:
    rows = ((0.0, 0.0, 8.0, 10.0, 11.0), (10.0, 10.0, 16.0, 16.5, 17.0), (20.0,) * 5)
    far = columns_of(rows, region=np.array([1, 0, 0], dtype=np.int8), kv_bytes=[5000.0, 7e9, 0.0])
    found = summary_of(far)
    assert found.link.bytes_per_s == pytest.approx(5000 / 20)
    assert found.link.share == pytest.approx(0.25)
    # The fullest bin lies in those two seconds: the link sent at its rate.
    assert found.link.peak_share == pytest.approx(1.0)


def test_each_cluster_has_its_own_figures() -> None:
    near = replace(DEPLOYMENT.remotes[0], name="near", instances=2, egress_bytes_per_s=500.0)
    both = replace(DEPLOYMENT, remotes=(*DEPLOYMENT.remotes, near))
    regions = columns_of(PLAIN, region=np.array([1, 2, 2], dtype=np.int8))
    sent = {**LINKS.sent_bytes, "near": np.array([0.0, 0.0, 0.0, 2500.0])}
    found = summarise(
        regions, both, slo=SLO, links=LinkLog(LINKS.at_s, sent), warmup_share=0
    ).clusters
    assert [(use.name, use.instances, use.offloaded) for use in found] == [
        ("far", 4, 1),
        ("near", 2, 2),
    ]
    assert [use.prefill for use in found] == pytest.approx([2 / (4 * 20), 6 / (2 * 20)])
    assert [use.link.share for use in found] == pytest.approx([0.25, 1250 / (20 * 500)])
    assert found[1].link.peak_share == pytest.approx(125 / 500)


def test_series_hold_all_request_seconds() -> None:
    found = summary_of(columns_of(PLAIN)).series
    width = found.edges_s[1]
    assert len(found.edges_s) == BINS + 1
    assert {stage: round(float(n.sum() * width), 6) for stage, n in found.requests.items()} == {
        "queued": 3.0,
        "prefill": 10.0,
        "transfer": 1.5,
        "decode_wait": pytest.approx(0.475 * 2),
        "decode": pytest.approx(3 * 2.525),
    }
    assert np.nanmax(found.ttft_p90_s) == pytest.approx(7.0)


def test_what_an_earlier_attempt_left_behind_is_not_counted() -> None:
    # Its first prefill ended at 3 s; the second began at 30 s and is still under way.
    again = columns_of(
        ((0.0, 30.0, 3.0, 3.5, NAN), (10.0, 10.0, 16.0, 16.5, 17.0)),
        outcome=np.array([0, 1], dtype=np.int8),
        attempts=np.array([2, 1], dtype=np.int8),
        route=np.array([ROUTES.index(Route.FALLBACK), 0], dtype=np.int8),
    )
    found = summary_of(again, until_s=50.0)
    assert (found.counts.retries, found.counts.fallbacks, found.counts.open) == (1, 1, 1)
    width = found.series.edges_s[1]
    assert found.series.requests["prefill"].sum() * width == pytest.approx(20 + 6)
    assert found.series.requests["transfer"].sum() * width == pytest.approx(0.5)
    assert found.breakdown.queueing_s == 0


@pytest.mark.parametrize(
    ("load", "stable"), [(0.7, True), (0.95, True), (1.05, False), (1.5, False)]
)
def test_a_queue_that_grows_is_not_stable(load: float, stable: bool) -> None:
    rng = np.random.default_rng(3)
    count, service_s = 20_000, 1.0
    arrival = np.cumsum(rng.exponential(service_s / load, count))
    start = np.empty(count)
    free = 0.0
    for index, at in enumerate(arrival):
        start[index] = max(at, free)
        free = start[index] + service_s
    end = start + service_s
    found = summary_of(columns_of(np.stack([arrival, start, end, end, end + 0.025]).T))
    assert found.stable is stable
    assert found.growth == pytest.approx(max(load - 1, 0), abs=0.03)


def test_a_delay_that_grows_by_next_to_nothing_is_stable() -> None:
    at_s = np.arange(0.0, 1000.0)
    rows = np.stack([at_s, at_s + 0.004 * at_s, *[at_s + 0.004 * at_s + 1.0] * 3]).T
    assert summary_of(columns_of(rows)).stable
    rows[:, 1:] += 0.002 * at_s[:, np.newaxis]
    assert not summary_of(columns_of(rows)).stable


def test_one_request_and_many_at_once() -> None:
    one = summary_of(columns_of(PLAIN[:1]))
    assert one.counts.requests == 1
    assert one.stable
    assert math.isfinite(one.goodput_per_s)
    at_once = summary_of(columns_of([PLAIN[0]] * 5))
    assert at_once.goodput_per_s == pytest.approx(5 / at_once.series.edges_s[-1])


@pytest.mark.parametrize("name", ["ttft_s", "tpot_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, NAN, math.inf])
def test_an_impossible_slo_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"slo: {name} = {value}"):
        Slo(**{"ttft_s": 1.0, "tpot_s": 1.0, name: value})


@pytest.mark.parametrize("share", [-0.1, 1.0, NAN])
def test_an_impossible_warm_up_is_refused_by_name(share: float) -> None:
    with pytest.raises(ConfigError, match=f"warmup_share = {share}"):
        summary_of(columns_of(PLAIN), warmup_share=share)
