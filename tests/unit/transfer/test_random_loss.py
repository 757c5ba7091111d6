"""When loss is the path's own, and when it is a queue that overflows."""

from prfaas.transfer.random_loss import RandomLoss
from prfaas.transfer.signals import PeerSignals


def seen(signals: PeerSignals, seconds: float, loss: RandomLoss | None = None) -> bool:
    """Show these signals for a time, five times a second."""
    loss = loss or RandomLoss()
    for step in range(int(seconds * 5) + 1):
        loss.observe(signals, step / 5)
    return loss.is_seen


LOSSY = PeerSignals(rtt_s=0.031, min_rtt_s=0.03, retransmit_share=0.001, busy_share=0.9)


def test_loss_without_a_queue_is_random_once_it_lasts() -> None:
    assert not seen(LOSSY, 0.8)
    assert seen(LOSSY, 1.2)


def test_loss_beside_a_queue_is_congestion() -> None:
    signals = PeerSignals(rtt_s=0.06, min_rtt_s=0.03, retransmit_share=0.01, busy_share=0.9)
    assert not seen(signals, 60)


def test_a_lane_that_idles_shows_nothing() -> None:
    signals = PeerSignals(rtt_s=0.03, min_rtt_s=0.03, retransmit_share=0.01, busy_share=0.1)
    assert not seen(signals, 60)


def test_a_packet_now_and_then_is_no_lossy_path() -> None:
    signals = PeerSignals(rtt_s=0.03, min_rtt_s=0.03, retransmit_share=0.0001, busy_share=0.9)
    assert not seen(signals, 60)


def test_moments_far_apart_do_not_add_up() -> None:
    loss = RandomLoss()
    quiet = PeerSignals(rtt_s=0.03, min_rtt_s=0.03, busy_share=0.9)
    for minute in range(60):
        loss.observe(quiet, minute * 60.0)
        loss.observe(LOSSY, minute * 60.0 + 0.2)
    assert not loss.is_seen


def test_a_sample_does_not_speak_for_a_time_in_which_nobody_looked() -> None:
    loss = RandomLoss()
    for number in range(10):
        loss.observe(LOSSY, number * 100.0)
    assert not loss.is_seen


def test_a_busy_machine_that_looks_once_a_second_sees_it_too() -> None:
    loss = RandomLoss()
    for second in range(4):
        loss.observe(LOSSY, float(second))
    assert loss.is_seen


def test_once_seen_it_stays() -> None:
    loss = RandomLoss()
    assert seen(LOSSY, 2, loss)
    loss.observe(PeerSignals(), 3)
    assert loss.is_seen
