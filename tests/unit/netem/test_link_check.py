import math
import random

import pytest

from prfaas_netem import link_check
from prfaas_netem.jitter import Distribution, spread
from prfaas_netem.link_check import Verdict
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss, LossProcess
from prfaas_netem.stream_probe import evaluate, packet


def arrivals(*numbers, delay_s=0.01):
    return [
        (packet(number, number * 10**6), number * 10**6 + int(delay_s * 1e9)) for number in numbers
    ]


def test_a_stream_that_arrives_as_it_was_sent():
    seen = evaluate(arrivals(*range(100)), sent=100)
    assert (seen.lost, seen.duplicated, seen.corrupted, seen.overtook) == (0, 0, 0, 0)
    assert (seen.delay_min_s, seen.delay_median_s, seen.spread_s) == (0.01, 0.01, 0)


def test_lost_doubled_and_overtaking_packets_are_told_apart():
    seen = evaluate(arrivals(0, 6, 1, 1, 2, 7, 8, 9), sent=10)
    assert (seen.lost, seen.duplicated, seen.corrupted, seen.overtook) == (3, 1, 0, 1)
    assert seen.loss_run == 3
    assert seen.share(seen.lost) == 0.3


def test_a_damaged_packet_is_not_a_lost_one():
    good, bad = arrivals(0, 1)
    damaged = bytearray(bad[0])
    damaged[100] ^= 4
    seen = evaluate([good, (bytes(damaged), bad[1]), (b"short", 5)], sent=4)
    assert (seen.corrupted, seen.lost) == (2, 1)


def test_nothing_arrived():
    seen = evaluate([], sent=5)
    assert (seen.lost, seen.loss_run) == (5, 5)
    assert math.isnan(seen.delay_median_s)
    assert link_check.check_delay(LinkSpec(), seen.delay_median_s).verdict is Verdict.OFF
    one = evaluate(arrivals(0), sent=1)
    assert (one.delay_median_s, one.spread_s) == (0.01, 0)


@pytest.mark.parametrize(
    ("median_s", "verdict"),
    [
        (0.0194, Verdict.OFF),
        (0.0196, Verdict.OK),
        (0.0249, Verdict.OK),
        (0.0251, Verdict.OFF),
        (math.nan, Verdict.OFF),
    ],
)
def test_round_trips(median_s, verdict):
    check = link_check.check_round_trip(LinkSpec(), LinkSpec(), median_s)
    assert (check.set, check.verdict) == (0.02, verdict)


def test_a_middle_half_is_that_of_the_distribution():
    for distribution in Distribution:
        chance = random.Random(4).random
        values = sorted(spread(distribution, chance) for _ in range(20_000))
        measured = values[15_000] - values[5000]
        assert link_check.middle_half(distribution) == pytest.approx(measured, abs=0.03)


@pytest.mark.parametrize(
    ("jitter_s", "measured_s", "verdict"),
    [
        (0, 0.0001, Verdict.OK),
        (0, 0.004, Verdict.OFF),
        (0.005, 0.005, Verdict.OK),
        (0.005, 0.001, Verdict.OFF),
        (0.005, 0.012, Verdict.OFF),
    ],
)
def test_spreads(jitter_s, measured_s, verdict):
    check = link_check.check_jitter(LinkSpec(jitter_s=jitter_s), measured_s)
    assert check.verdict is verdict


def verdicts(spec, *, sent=4000, **shares):
    nothing = {"lost": 0.0, "corrupted": 0.0, "duplicated": 0.0, "overtook": 0.0}
    checks = link_check.check_shares(spec, sent=sent, **(nothing | shares))
    return {check.quantity: check.verdict for check in checks}


def test_shares_of_a_clean_link():
    assert set(verdicts(LinkSpec()).values()) == {Verdict.OK}
    assert verdicts(LinkSpec(), lost=0.003)["loss"] is Verdict.OFF
    assert verdicts(LinkSpec(), overtook=0.003)["reordering"] is Verdict.OFF


@pytest.mark.parametrize(("lost", "verdict"), [(0.05, "ok"), (0.03, "off"), (0.07, "off")])
def test_loss_is_within_four_deviations(lost, verdict):
    assert verdicts(LinkSpec(loss=0.05), lost=lost)["loss"] == verdict


def test_bursts_are_allowed_to_vary_more():
    burst = BurstLoss(enter=0.005, leave=0.25)
    off = 0
    for seed in range(200):
        process = LossProcess(burst, chance=random.Random(seed).random)
        lost = sum(process.hits() for _ in range(4000)) / 4000
        off += verdicts(LinkSpec(burst_loss=burst), lost=lost)["loss"] is Verdict.OFF
    assert off == 0
    assert verdicts(LinkSpec(burst_loss=burst), lost=0.05)["loss"] is Verdict.OFF


def test_what_is_lost_cannot_be_damaged_as_well():
    spec = LinkSpec(loss=0.5, corruption=0.2)
    assert verdicts(spec, lost=0.5, corrupted=0.1)["corruption"] is Verdict.OK
    assert verdicts(spec, lost=0.5, corrupted=0.2)["corruption"] is Verdict.OFF


@pytest.mark.parametrize(
    ("options", "measured", "verdict"),
    [
        ({"rate": "100mbit"}, 95e6, Verdict.OK),
        ({"rate": "100mbit"}, 116e6, Verdict.OFF),
        ({"rate": "100mbit"}, 50e6, Verdict.OFF),
        ({"rate": "100mbit", "loss": "1%"}, 50e6, Verdict.NOT_REACHED),
        ({"rate": "100mbit", "loss": "1%"}, 120e6, Verdict.OFF),
        ({"rate": "100gbit"}, 5e9, Verdict.NOT_REACHED),
    ],
)
def test_rates(options, measured, verdict):
    spec = LinkSpec.parse(**options)
    well = link_check.carries_tcp_well(spec)
    assert link_check.check_rate(spec, measured, carries_tcp_well=well).verdict is verdict


def test_json_has_bounds_and_verdict():
    check = link_check.check_rate(LinkSpec(), 1e9, carries_tcp_well=True)
    assert check.to_json()["verdict"] == "not reached"
    assert check.to_json()["low"] == 85e9
