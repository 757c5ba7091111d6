import random

import pytest

from prfaas_netem.kernel_link import htb_options
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.shaper import Shaper, segments_of


def shaper(spec, seed=1):
    return Shaper(spec, chance=random.Random(seed).random)


def test_delay():
    link = shaper(LinkSpec.parse(rate="1tbit", delay="10ms"))
    assert link.admit(100.0, 100).due == pytest.approx(100.010, abs=1e-6)


def test_rate_spaces_packets():
    link = shaper(LinkSpec.parse(rate="8mbit", delay="0ms"))  # 1 byte a microsecond
    first, second = link.admit(0.0, 986).due, link.admit(0.0, 986).due  # 1,000 with the frame
    assert (first, second) == (pytest.approx(0.001), pytest.approx(0.002))


def test_idle_time_earns_nothing():
    link = shaper(LinkSpec.parse(rate="8mbit", delay="0ms"))
    link.admit(0.0, 986)
    assert link.admit(5.0, 986).due == pytest.approx(5.001)


def test_super_packet_counts_as_its_segments():
    assert [segments_of(size) for size in (0, 40, 1500, 1501, 52 + 2 * 1448)] == [1, 1, 1, 2, 2]
    link = shaper(LinkSpec())
    link.admit(0.0, 52 + 3 * 1448)
    assert (link.packets, link.bytes) == (3, 3 * (1448 + 52 + 14))


def test_backlog_is_bounded():
    spec = LinkSpec.parse(rate="8mbit", delay="0ms")
    link = shaper(spec)
    admitted = [link.admit(0.0, 986) for _ in range(1000)]
    assert admitted.count(None) == link.overflow_packets
    assert link.packets == spec.queue_bytes // 1000 + 1
    assert link.admit(10.0, 986) is not None


def test_loss_is_the_given_share():
    link = shaper(LinkSpec.parse(loss="5%"))
    lost = sum(link.admit(0.0, 100) is None for _ in range(20000))
    assert lost == link.lost_packets
    assert 0.045 < lost / 20000 < 0.055


def test_loss_hits_a_super_packet_more_often():
    link = shaper(LinkSpec.parse(loss="5%", mode="gso"))
    lost = sum(link.admit(0.0, 52 + 10 * 1448) is None for _ in range(5000))
    assert lost / 5000 == pytest.approx(1 - 0.95**10, abs=0.03)


def test_all_and_nothing_lost():
    assert shaper(LinkSpec(loss=1)).admit(0.0, 100) is None
    assert shaper(LinkSpec(loss=0)).admit(0.0, 100) is not None


def test_jitter_spreads_but_keeps_order():
    link = shaper(LinkSpec.parse(delay="10ms", jitter="2ms"))
    far_apart = [link.admit(number * 1.0, 100).due - number for number in range(1000)]
    assert min(far_apart) == pytest.approx(0.008, abs=1e-4)
    assert max(far_apart) == pytest.approx(0.012, abs=1e-4)
    dense = [link.admit(2000 + number * 1e-5, 100).due for number in range(1000)]
    assert dense == sorted(dense)


def test_spec_changes_at_once():
    link = shaper(LinkSpec.parse(delay="10ms"))
    link.admit(0.0, 100)
    link.spec = LinkSpec.parse(delay="1ms")
    link.shift(-0.009)
    assert link.admit(0.0, 100).due == pytest.approx(0.001, abs=1e-6)


def test_htb_takes_bytes():
    options = htb_options(LinkSpec())
    assert options == {"rate": 12_500_000_000, "burst": 12_500_000, "cburst": 12_500_000}
    assert htb_options(LinkSpec.parse(rate="1mbit"))["burst"] == 64 * 1024
