"""What samples come to: from when requests were due, and nothing left out to look better."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from prfaas.errors import StateError
from prfaas_loadtest.campaigns import Outcome, Sample, Slo, Summary, read_samples, summarise
from prfaas_loadtest.campaigns.conductor import SampleBook
from prfaas_loadtest.campaigns.sample import format_sample

SLO = Slo(1.0, 0.1)


def answered(index: int, *, wait_s: float = 0.5, due_s: float | None = None) -> Sample:
    due = float(index) if due_s is None else due_s
    return Sample(
        index=index, tenant="a", outcome=Outcome.ANSWERED, due_s=due, sent_s=due + 0.01,
        first_s=due + wait_s, last_s=due + wait_s + 0.4, prompt_tokens=10, told_prompt_tokens=10,
        wanted=5, tokens=5, status=200, route="local", gaps_s=(0.1, 0.1, 0.1, 0.1),
    )  # fmt: skip


def summary(*samples: Sample, warmup: float = 0.0, dilation: float = 1.0) -> Summary:
    return summarise(samples, slo=SLO, warmup_share=warmup, dilation=dilation)


def test_latencies_count_from_when_a_request_was_due_not_from_when_it_was_sent() -> None:
    late = replace(answered(0), sent_s=0.45)
    found = summary(late, answered(1))
    assert found.ttft.mean == pytest.approx(0.5)
    assert found.e2e.mean == pytest.approx(0.9)
    assert found.tpot.mean == pytest.approx(0.1)
    assert found.itl.mean == pytest.approx(0.1)
    assert found.lag.p99 > 0.4


def test_rates_and_goodput_are_of_the_window_after_the_warm_up() -> None:
    slow = [answered(index, wait_s=2.0) for index in range(10)]
    good = [answered(index) for index in range(10, 21)]
    whole = summary(*slow, *good)
    assert whole.attainment == pytest.approx(11 / 21)
    kept = summary(*slow, *good, warmup=0.5)
    assert kept.requests == 11
    assert kept.attainment == 1.0
    assert kept.offered_per_s == pytest.approx(1.1)
    assert kept.goodput_per_s == pytest.approx(1.1)


def test_what_failed_counts_against_the_slo_and_its_wait_counts_as_latency() -> None:
    lost = Sample(0, "a", Outcome.OPEN, due_s=0.0, sent_s=0.0, last_s=30.0, wanted=5)
    refused = Sample(1, "a", Outcome.REFUSED, due_s=1.0, sent_s=1.0, last_s=1.1, status=503)
    found = summary(lost, refused, answered(2))
    assert found.attainment == pytest.approx(1 / 3)
    assert found.outcomes == {"open": 1, "refused": 1, "answered": 1}
    assert found.ttft.mean == pytest.approx((30 + 0.5) / 2)
    assert found.errors == {"open": 1, "refused 503": 1}


def test_a_wrong_number_of_tokens_is_no_answer() -> None:
    wrong = replace(answered(0), outcome=Outcome.WRONG, tokens=4)
    assert summary(wrong, answered(1)).attainment == 0.5


def test_seconds_of_a_slow_world_are_divided_and_rates_multiplied() -> None:
    plain = summary(*(answered(index) for index in range(11)))
    slow = [
        replace(
            sample, due_s=4 * sample.due_s, sent_s=4 * sample.sent_s, first_s=4 * sample.first_s,
            last_s=4 * sample.last_s, gaps_s=tuple(4 * gap for gap in sample.gaps_s),
        )
        for sample in map(answered, range(11))
    ]  # fmt: skip
    found = summary(*slow, dilation=4.0)
    assert found.ttft.mean == pytest.approx(plain.ttft.mean)
    assert found.itl.p90 == pytest.approx(plain.itl.p90)
    assert found.offered_per_s == pytest.approx(plain.offered_per_s)


def test_a_queue_that_grows_is_unstable_and_one_burst_is_not() -> None:
    growing = [answered(index, wait_s=0.1 * index) for index in range(60)]
    assert not summary(*growing).stable
    burst = [answered(index, wait_s=9.0 if 20 < index < 30 else 0.5) for index in range(60)]
    assert summary(*burst).stable


def test_prompts_that_the_gateway_counts_otherwise_are_told() -> None:
    other = replace(answered(1), told_prompt_tokens=11)
    unknown = replace(answered(2), told_prompt_tokens=-1)
    assert summary(answered(0), other, unknown).miscounted == 1


def test_tenants_have_figures_of_their_own() -> None:
    found = summary(answered(0), replace(answered(1, wait_s=3.0), tenant="b"), answered(2))
    assert found.tenants["a"].attainment == 1.0
    assert found.tenants["b"].attainment == 0.0
    assert found.tenants["b"].ttft.mean == pytest.approx(3.0)


def test_a_run_whose_requests_came_at_once_has_rates_too() -> None:
    found = summary(answered(0, due_s=0.0), answered(1, due_s=0.0))
    assert math.isfinite(found.offered_per_s)
    assert found.attainment == 1.0


def test_no_samples_are_an_error() -> None:
    with pytest.raises(StateError, match="no request was measured"):
        summary()


def test_samples_are_read_back_in_order_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    rows = [answered(2), answered(0)]
    file.write_bytes(b"".join(map(format_sample, rows)) + b'{"index": 3, "ten')
    assert read_samples(file) == [answered(0), answered(2)]
    file.write_bytes(b'{"index": 3}\n')
    with pytest.raises(StateError, match=r"samples.jsonl:1: not a sample"):
        read_samples(file)


def test_connections_refused_at_once_are_no_short_latencies() -> None:
    lost = [
        Sample(n, "a", Outcome.BROKEN, due_s=n, sent_s=n, last_s=n + 0.003, wanted=5)
        for n in range(1, 9)
    ]
    found = summary(answered(0), *lost)
    assert found.ttft.mean == pytest.approx(0.5)
    assert found.e2e.mean == pytest.approx(0.9)
    assert math.isnan(summary(*lost).ttft.mean)
    stalled = replace(lost[0], first_s=1.2, tokens=1)
    assert summary(answered(0), stalled).ttft.mean == pytest.approx(0.35)


def test_requests_at_nearly_one_moment_show_no_growth() -> None:
    found = summary(*(answered(index, due_s=index * 1e-308) for index in range(9)))
    assert found.stable
    assert found.growth == 0.0


def test_what_a_server_names_its_routes_cannot_steer_the_terminal(tmp_path: Path) -> None:
    book = SampleBook(tmp_path / "samples.jsonl", total=1, dilation=1.0)
    book.write(replace(answered(0), route="\x1b[2Jlocal"))
    book.close()
    assert book.line(3.0).endswith("(\\x1b[2Jlocal 1)")
