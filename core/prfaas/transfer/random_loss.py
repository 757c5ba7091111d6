"""Tells a path that loses packets on its way from one whose queues overflow."""

from dataclasses import dataclass

from prfaas.transfer.signals import PeerSignals


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomLossLimits:
    """When loss counts as random.

    loss: least share of bytes that were sent again. busy_share: the lanes were in use for so much
    of the time. queue_s, queue_rtts: how far beyond the smallest round trip is no queue (the larger
    one). lasts_s: in all, at one stretch of `within_s`. most_s: of that, the most that one sample
    counts for, however long ago the last one was.
    """

    loss: float = 0.0005
    busy_share: float = 0.5
    queue_s: float = 0.005
    queue_rtts: float = 0.25
    lasts_s: float = 1.0
    within_s: float = 10.0
    most_s: float = 0.5


class RandomLoss:
    """Follows one peer's signals; `is_seen` stays True once loss without a queue was seen.

    Loss-based congestion control takes every lost packet for a full queue: at 30 ms and one packet
    in a thousand, eight cubic connections carry a tenth of a Gbit/s link.
    """

    def __init__(self, limits: RandomLossLimits | None = None) -> None:
        self._limits = limits or RandomLossLimits()
        self._seen_s = 0.0
        self._began_s = float("-inf")
        self._last_s: float | None = None
        self.is_seen = False

    def observe(self, signals: PeerSignals, now: float) -> None:
        """Take the signals of the time since the last call."""
        limits = self._limits
        passed_s = 0.0 if self._last_s is None else min(now - self._last_s, limits.most_s)
        self._last_s = now
        if now - self._began_s > limits.within_s:
            self._seen_s, self._began_s = 0.0, now
        slack_s = max(limits.queue_s, limits.queue_rtts * signals.min_rtt_s)
        has_no_queue = 0 < signals.rtt_s <= signals.min_rtt_s + slack_s
        is_busy = signals.busy_share >= limits.busy_share
        if is_busy and has_no_queue and signals.retransmit_share >= limits.loss:
            self._seen_s += passed_s
            self.is_seen = self.is_seen or self._seen_s >= limits.lasts_s
