"""Liveness of one lane: when to send PING, when to call the peer dead."""

SILENT_PERIODS = 3


class Liveness:
    """A side that sent nothing for `period_s` sends PING; one that heard nothing for
    three periods closes the lane. Times are seconds of a monotonic clock.
    """

    def __init__(self, period_s: float, now: float) -> None:
        self.period_s = period_s
        self._sent_s = now
        self._heard_s = now

    def sent(self, now: float) -> None:
        """Bytes went out."""
        self._sent_s = now

    def heard(self, now: float) -> None:
        """Bytes came in."""
        self._heard_s = now

    def wants_ping(self, now: float) -> bool:
        """Say whether it is time for a PING."""
        return now - self._sent_s >= self.period_s

    def is_dead(self, now: float) -> bool:
        """Say whether the peer was silent for too long."""
        return now - self._heard_s >= SILENT_PERIODS * self.period_s
