"""What a path's signals say of made-up series of TCP_INFO readings."""

from dataclasses import dataclass, field

import pytest

from prfaas.routing.link_control import LinkSignal
from prfaas.transfer.signals import Congestion, LaneSample, PathEstimator, PeerSignals

PERIOD_S = 0.2
RATE = 125e6
RTT_S = 0.03


@dataclass
class Path:
    """Lanes of one peer; every `step` is one period in which they did what it says."""

    lanes: int = 2
    now: float = 100.0
    estimator: PathEstimator = field(default_factory=PathEstimator)

    def __post_init__(self) -> None:
        self.totals = {lane: [0, 0, 0.0, 0.0, 0.0] for lane in range(self.lanes)}
        self.step()

    def step(
        self,
        *,
        bytes_per_s: float = 0.0,
        loss: float = 0.0,
        rtt_s: float = RTT_S,
        busy: float = 0.0,
        rwnd: float = 0.0,
        sndbuf: float = 0.0,
        backlog: int = 0,
        burst_bytes_per_s: float = 0.0,
        times: int = 1,
    ) -> PeerSignals:
        for _ in range(times):
            self.now += PERIOD_S
            samples = []
            for lane, total in self.totals.items():
                acked = int(bytes_per_s * PERIOD_S / self.lanes)
                total[0] += acked
                total[1] += int(acked * loss)
                total[2] += busy * PERIOD_S
                total[3] += rwnd * PERIOD_S
                total[4] += sndbuf * PERIOD_S
                sample = LaneSample(
                    lane=lane,
                    at_s=self.now,
                    rtt_s=rtt_s,
                    rttvar_s=0.001,
                    bytes_acked=int(total[0]),
                    bytes_retrans=int(total[1]),
                    delivery_bytes_per_s=burst_bytes_per_s or bytes_per_s / self.lanes,
                    busy_s=total[2],
                    rwnd_limited_s=total[3],
                    sndbuf_limited_s=total[4],
                    unsent_bytes=0,
                )
                samples.append(sample)
            signals = self.estimator.update(samples, backlog_bytes=backlog, now=self.now)
        return signals


def test_idle_says_nothing_bad_and_nothing_of_the_rate() -> None:
    signals = Path().step(times=10)
    assert (signals.is_up, signals.congestion) == (True, Congestion.NONE)
    assert signals.delivery_bytes_per_s == signals.available_bytes_per_s == 0.0
    assert signals.min_rtt_s == pytest.approx(RTT_S)


def test_bursts_show_what_the_path_carries_and_that_it_is_hardly_used() -> None:
    signals = Path().step(bytes_per_s=10e6, busy=0.08, burst_bytes_per_s=RATE, times=20)
    assert signals.available_bytes_per_s == pytest.approx(RATE)
    assert signals.utilisation == pytest.approx(0.08, abs=0.01)
    assert signals.congestion == Congestion.NONE


def test_a_link_that_is_the_limit_is_measured_and_fully_used() -> None:
    signals = Path().step(bytes_per_s=RATE, busy=1.0, backlog=250_000_000, times=20)
    assert signals.available_bytes_per_s == pytest.approx(RATE, rel=0.02)
    assert signals.utilisation == pytest.approx(1.0, abs=0.02)
    assert signals.backlog_s == pytest.approx(2.0, rel=0.05)
    assert signals.busy_share == pytest.approx(1.0)


def test_a_link_that_carries_less_is_noticed_within_two_seconds() -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9, times=20)
    signals = path.step(bytes_per_s=RATE / 4, busy=1.0, backlog=10**9, times=10)
    assert signals.available_bytes_per_s == pytest.approx(RATE / 4, rel=0.1)


def test_a_slow_receiver_is_not_taken_for_a_slow_link() -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9, times=20)
    signals = path.step(bytes_per_s=RATE / 10, busy=1.0, rwnd=0.9, backlog=10**9, times=10)
    assert signals.rwnd_limited_share == pytest.approx(0.9)
    assert signals.available_bytes_per_s == pytest.approx(RATE, rel=0.02)
    assert signals.utilisation == pytest.approx(0.1, abs=0.02)


def test_our_own_buffer_as_the_limit_is_told() -> None:
    signals = Path().step(bytes_per_s=RATE, busy=1.0, sndbuf=0.8, backlog=10**9, times=5)
    assert signals.sndbuf_limited_share == pytest.approx(0.8)


def test_rtt_that_grows_is_congestion_before_anything_is_lost() -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, backlog=1, times=5)
    building = path.step(bytes_per_s=RATE, busy=1.0, rtt_s=RTT_S * 1.4, backlog=1)
    assert building.congestion == Congestion.BUILDING
    assert building.retransmit_share == 0.0
    assert path.step(bytes_per_s=RATE, busy=1.0, rtt_s=RTT_S * 2.1).congestion == "congested"
    assert path.step(bytes_per_s=RATE, busy=1.0).congestion == Congestion.NONE


def test_rtt_that_grows_by_little_on_a_short_path_is_noise() -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, rtt_s=0.0005, times=5)
    assert path.step(bytes_per_s=RATE, busy=1.0, rtt_s=0.002).congestion == Congestion.NONE


@pytest.mark.parametrize(
    ("loss", "congestion"), [(0.001, "none"), (0.01, "building"), (0.1, "congested")]
)
def test_loss_is_congestion(loss: float, congestion: str) -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, times=10)
    signals = path.step(bytes_per_s=RATE, busy=1.0, loss=loss, times=10)
    assert signals.congestion == congestion
    assert signals.retransmit_share == pytest.approx(loss, rel=0.15)
    assert signals.loss_share == signals.retransmit_share


def test_a_packet_lost_among_few_is_noise() -> None:
    signals = Path().step(bytes_per_s=100_000, busy=0.1, loss=0.1, times=10)
    assert signals.congestion == Congestion.NONE
    assert signals.retransmit_share == pytest.approx(0.1, rel=0.15)
    assert signals.loss_share == 0.0


def test_loss_is_forgotten_once_it_is_over() -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, loss=0.1, times=10)
    assert path.step(bytes_per_s=RATE, busy=1.0, times=20).congestion == Congestion.NONE


def test_an_outage_is_down_after_a_second_and_up_with_the_first_byte() -> None:
    path = Path()
    path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9, times=10)
    assert path.step(busy=1.0, backlog=10**9, times=4).is_up
    assert not path.step(busy=1.0, backlog=10**9, times=4).is_up
    assert path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9).is_up


def test_no_lane_is_down() -> None:
    estimator = PathEstimator()
    assert not estimator.update([], backlog_bytes=0, now=1.0).is_up


def test_a_new_lane_and_one_that_is_gone_do_not_bend_the_rate() -> None:
    path = Path(lanes=2)
    path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9, times=10)
    path.totals[7] = [10**12, 0, 0.0, 0.0, 0.0]
    del path.totals[0]
    path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9)
    signals = path.step(bytes_per_s=RATE, busy=1.0, backlog=10**9, times=10)
    assert signals.delivery_bytes_per_s == pytest.approx(RATE, rel=0.05)
    assert signals.available_bytes_per_s == pytest.approx(RATE, rel=0.05)


def test_routing_gets_what_it_goes_by() -> None:
    signals = PeerSignals(utilisation=0.5, backlog_s=1.5, loss_share=0.02, is_up=False)
    assert signals.link_signal() == LinkSignal(0.5, 1.5, 0.02, up=False)


def test_signals_are_plain_json() -> None:
    import json

    assert json.loads(json.dumps(PeerSignals().to_json()))["congestion"] == "none"
