"""Lanes are added where buffers are the limit, nowhere else."""

import pytest

from prfaas.transfer.signals import LaneSample
from prfaas_transport.lane_count import FIRST_LANES, MOST_LANES, LaneCount, window_bytes


def run(count: LaneCount, lanes: int, bytes_per_s: float, rtt_s: float, seconds: float) -> int:
    """Let so many lanes share a path evenly; return what is wanted at the end."""
    for tick in range(round(seconds * 5) + 1):
        for lane in range(lanes):
            sample = LaneSample(
                lane=lane,
                at_s=100 + tick * 0.2,
                rtt_s=rtt_s,
                rttvar_s=0.0,
                bytes_acked=0,
                bytes_retrans=0,
                delivery_bytes_per_s=0.0,
                busy_s=0.0,
                rwnd_limited_s=0.0,
                sndbuf_limited_s=0.0,
                unsent_bytes=0,
            )
            count.observe(sample, int(tick * 0.2 * bytes_per_s / lanes))
    return count.wanted


@pytest.mark.parametrize(
    ("gbits", "rtt_s", "window", "wanted"),
    [
        (1, 0.02, 2 << 20, 8),  # 0.3 MB a lane and round trip
        (1, 0.1, 2 << 20, 16),  # 1.6 MB of 2
        (1, 0.1, 32 << 20, 8),
        (20, 0.0002, 2 << 20, 8),
        (0, 0.1, 2 << 20, 8),
    ],
)
def test_one_step(gbits: float, rtt_s: float, window: int, wanted: int) -> None:
    assert run(LaneCount(window), FIRST_LANES, gbits * 1e9 / 8, rtt_s, 1.5) == wanted


def test_grows_to_the_limit_and_no_further() -> None:
    count = LaneCount(2 << 20)
    assert run(count, FIRST_LANES, 10e9 / 8, 0.1, 1.0) == 16
    for _ in range(5):
        run(count, count.wanted, 20e9 / 8, 0.1, 2.0)
    assert count.wanted == MOST_LANES


def test_a_few_full_lanes_of_many_idle_ones_are_no_reason() -> None:
    assert run(LaneCount(2 << 20), 3, 3 * 20e6, 0.1, 3.0) == FIRST_LANES


def test_the_window_is_what_the_kernel_says() -> None:
    assert 64 << 10 <= window_bytes() <= 1 << 32
