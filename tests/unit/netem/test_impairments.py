"""Loss, jitter, reordering, duplication and corruption as the shaper decides on them: statistics of
seeded chances, so that each number here is the same in every run."""

import random
import statistics
from itertools import groupby, pairwise

import pytest

from prfaas.errors import ConfigError
from prfaas_netem.jitter import Distribution, spread
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss, LossProcess
from prfaas_netem.shaper import Shaper

MANY = 40_000


def fates(spec, *, seed=1, count=MANY, interval_s=0.001, length=1000):
    link = Shaper(spec, chance=random.Random(seed).random)
    return link, [link.admit(number * interval_s, length) for number in range(count)]


def losses(spec, **options):
    return [fate is None for fate in fates(spec, **options)[1]]


def share(flags):
    return sum(flags) / len(flags)


def mean_run(flags):
    runs = [len(list(run)) for lost, run in groupby(flags) if lost]
    return statistics.mean(runs)


def correlation(flags):
    mean = share(flags)
    both = statistics.mean(a and b for a, b in pairwise(flags))
    return (both - mean * mean) / (mean * (1 - mean))


def test_losses_on_their_own_are_not_correlated():
    flags = losses(LinkSpec(loss=0.1))
    assert share(flags) == pytest.approx(0.1, abs=0.005)
    assert correlation(flags) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(("loss", "wanted"), [(0.05, 0.25), (0.1, 0.5), (0.3, 0.8)])
def test_correlated_loss_keeps_its_share(loss, wanted):
    flags = losses(LinkSpec(loss=loss, loss_correlation=wanted))
    assert share(flags) == pytest.approx(loss, rel=0.1)
    assert correlation(flags) == pytest.approx(wanted, abs=0.05)


def test_bursts_are_as_long_and_as_frequent_as_set():
    burst = BurstLoss(enter=0.005, leave=0.25)
    process = LossProcess(burst, chance=random.Random(1).random)
    flags = [process.hits() for _ in range(200_000)]
    assert burst.loss_share == pytest.approx(0.0196, abs=1e-4)
    assert share(flags) == pytest.approx(burst.loss_share, rel=0.1)
    assert mean_run(flags) == pytest.approx(4, rel=0.1)


def test_a_burst_may_let_some_through_and_the_good_state_lose_some():
    burst = BurstLoss(enter=0.02, leave=0.1, loss_bad=0.5, loss_good=0.01)
    flags = losses(LinkSpec(burst_loss=burst))
    assert burst.loss_share == pytest.approx(1 / 6 * 0.5 + 5 / 6 * 0.01)
    assert share(flags) == pytest.approx(burst.loss_share, rel=0.1)


def test_a_super_packet_takes_as_many_steps_as_it_has_segments():
    burst = BurstLoss(enter=0.01, leave=0.5)
    process = LossProcess(burst, chance=random.Random(3).random)
    hits = share([process.hits(10) for _ in range(5000)])
    single = LossProcess(burst, chance=random.Random(3).random)
    flags = [single.hits() for _ in range(50_000)]
    assert hits == share([any(flags[at : at + 10]) for at in range(0, 50_000, 10)])


@pytest.mark.parametrize(
    "fields",
    [
        {"enter": 0, "leave": 0.1},
        {"enter": 0.1, "leave": 0},
        {"enter": 1.1, "leave": 0.1},
        {"enter": 0.1, "leave": 0.1, "loss_bad": -1},
        {"enter": 0.1, "leave": 0.1, "loss_good": float("nan")},
        {"enter": True, "leave": 0.1},
    ],
)
def test_wrong_channels_are_refused(fields):
    with pytest.raises(ConfigError, match=r"burst loss: .*allowed: "):
        BurstLoss(**fields)


@pytest.mark.parametrize("value", [1, {}, {"enter": 0.1}, {"enter": 0.1, "leave": 0.1, "p": 1}])
def test_wrong_json_channels_are_refused(value):
    with pytest.raises(ConfigError, match=r"burst loss: .*allowed: "):
        BurstLoss.from_json(value)


@pytest.mark.parametrize(
    ("distribution", "deciles_and_quarters", "low", "high"),
    [
        (Distribution.UNIFORM, (-0.8, -0.5, 0, 0.5, 0.8), -1, 1),
        # Those of the tables normal.dist, pareto.dist and paretonormal.dist of iproute2 6.1.
        (Distribution.NORMAL, (-1.282, -0.674, 0, 0.675, 1.281), -4, 4),
        (Distribution.PARETO, (-0.619, -0.532, -0.320, 0.117, 0.872), -0.67, 4),
        (Distribution.PARETO_NORMAL, (-0.785, -0.568, -0.240, 0.256, 0.974), -1.7, 4),
    ],
)
def test_distributions_are_those_of_netem(distribution, deciles_and_quarters, low, high):
    chance = random.Random(5).random
    values = sorted(spread(distribution, chance) for _ in range(MANY))
    for share_below, wanted in zip((10, 25, 50, 75, 90), deciles_and_quarters, strict=True):
        assert values[MANY * share_below // 100] == pytest.approx(wanted, abs=0.1)
    assert low <= values[0]
    assert values[-1] <= high


def test_a_paretos_tail_is_late():
    chance = random.Random(5).random
    values = sorted(spread(Distribution.PARETO, chance) for _ in range(MANY))
    median = values[MANY // 2]
    assert values[-MANY // 100] - median > 3 * (median - values[MANY // 100])


def test_no_delay_is_below_zero():
    spec = LinkSpec(
        delay_s=0.001,
        jitter_s=0.001,
        jitter_distribution=Distribution.NORMAL,
        rate_bits_per_s=10**9,
    )
    _, each = fates(spec, interval_s=0.1, count=5000)
    assert min(fate.due - number * 0.1 for number, fate in enumerate(each)) > 0


def test_overtakers_skip_the_delay():
    spec = LinkSpec(delay_s=0.02, reordering=0.03)
    link, each = fates(spec)
    early = [fate.due - number * 0.001 for number, fate in enumerate(each) if fate.overtakes]
    assert share([fate.overtakes for fate in each]) == pytest.approx(0.03, abs=0.004)
    assert len(early) == link.reordered_packets
    assert max(early) < 0.0001
    others = [fate.due for fate in each if not fate.overtakes]
    assert others == sorted(others)


def test_a_copy_comes_after_the_packet_and_takes_its_share_of_the_rate():
    spec = LinkSpec(rate_bits_per_s=8 * 10**6, delay_s=0.01, duplication=0.1)
    link, each = fates(spec, interval_s=0.01, length=986)
    copies = [fate for fate in each if fate.copy_due is not None]
    assert len(copies) / MANY == pytest.approx(0.1, abs=0.006)
    assert len(copies) == link.duplicated_packets
    for fate in copies:
        assert fate.copy_due - fate.due == pytest.approx(0.001, abs=1e-6)
    assert link.packets == MANY + len(copies)


def test_one_bit_of_a_corrupted_packet_is_wrong_and_never_of_its_ip_header():
    link, each = fates(LinkSpec(corruption=0.05), length=100)
    bits = [fate.flipped_bit for fate in each if fate.flipped_bit is not None]
    assert len(bits) / MANY == pytest.approx(0.05, abs=0.004)
    assert len(bits) == link.corrupted_packets
    assert set(bits) <= set(range(160, 800))
    assert len(set(bits)) > 500
    assert Shaper(LinkSpec(corruption=1), chance=lambda: 0.5).admit(0, 20).flipped_bit is None


def test_the_same_seed_gives_the_same_fates():
    spec = LinkSpec(
        jitter_s=0.001, burst_loss=BurstLoss(enter=0.01, leave=0.2), corruption=0.1, reordering=0.1
    )
    assert fates(spec, seed=7)[1] == fates(spec, seed=7)[1]
    assert fates(spec, seed=7)[1] != fates(spec, seed=8)[1]


@pytest.mark.parametrize(
    "options",
    [
        {"burst_loss": "1%"},
        {"burst_loss": "1%,2%,3%,4%,5%"},
        {"burst_loss": "1%,200%"},
        {"burst_loss": "0%,20%"},
        {"burst_loss": "1%,20%", "loss": "1%"},
        {"loss_correlation": "20%"},
        {"loss": "1%", "loss_correlation": "100%"},
        {"reordering": "1%", "delay": "0ms"},
        {"corruption": "1%", "mode": "gso"},
        {"duplication": "1%", "mode": "gso"},
        {"reordering": "1%", "mode": "gso"},
        {"jitter_distribution": "flat"},
        {"corruption": "101%"},
    ],
)
def test_wrong_combinations_are_refused(options):
    with pytest.raises(ConfigError, match=r"allowed|one of them"):
        LinkSpec.parse(**options)


def test_one_kind_of_loss_takes_the_place_of_the_other():
    spec = LinkSpec.parse(loss="1%", loss_correlation="20%")
    bursty = spec.changed(burst_loss="1%,20%,80%,0.1%")
    assert bursty.burst_loss == BurstLoss(enter=0.01, leave=0.2, loss_bad=0.8, loss_good=0.001)
    assert (bursty.loss, bursty.loss_correlation) == (0, 0)
    assert bursty.changed(loss="2%") == LinkSpec.parse(loss="2%")
    assert bursty.changed(burst_loss="none") == LinkSpec.default()


def test_what_meets_single_packets_splits_super_packets():
    for options in ({"burst_loss": "1%,9%"}, {"reordering": "1%"}, {"duplication": "1%"}):
        assert LinkSpec.parse(**options).splits_super_packets
    assert not LinkSpec.parse(jitter="1ms").splits_super_packets
    assert LinkSpec.parse(corruption="1%").needs_payload
    assert not LinkSpec.parse(reordering="1%").needs_payload


def test_json_and_text_of_everything():
    spec = LinkSpec.parse(
        jitter="1ms",
        jitter_distribution="pareto",
        burst_loss="1%,25%",
        corruption="0.1%",
        duplication="0.2%",
        reordering="0.3%",
    )
    assert LinkSpec.from_json(spec.to_json()) == spec
    assert str(spec) == (
        "100gbit, 10ms one way ±1ms pareto, 3.846% loss in bursts of 4, 0.1% corruption,"
        " 0.2% duplication, 0.3% reordering"
    )
    assert str(LinkSpec(loss=0.1, loss_correlation=0.5)).endswith("10% loss (50% correlated)")
