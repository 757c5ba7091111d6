"""Liveness of one lane: when to send PING, when to call the peer dead."""

STUCK_PERIODS = 3
LONGEST_PING_S = 0.5
_PINGS_PER_PERIOD = 4
STALLED_S = 0.3


class Liveness:
    """A host that lets nothing be heard for `period_s` is gone; a process that says nothing while
    its host acknowledges is stuck, and given up after three periods. Who sent nothing for a quarter
    of a period, half a second at most, sends PING. Times are seconds of a monotonic clock.
    """

    def __init__(self, period_s: float, now: float) -> None:
        self.period_s = period_s
        self.rtt_s: float | None = None
        self._sent_s = now
        self._heard_s = now
        self._ping_s: float | None = None
        self._unanswered_s: float | None = None

    def sent(self, now: float) -> None:
        """Bytes went out."""
        self._sent_s = now

    def heard(self, now: float) -> None:
        """Bytes came in."""
        self._heard_s = now
        self._unanswered_s = None

    def pinged(self, now: float) -> None:
        """A PING goes out."""
        self._sent_s = self._ping_s = now
        if self._unanswered_s is None:
            self._unanswered_s = now

    def ponged(self, now: float) -> None:
        """The last PING was answered."""
        if self._ping_s is not None:
            self.rtt_s = now - self._ping_s

    def wants_ping(self, now: float) -> bool:
        """Say whether it is time for a PING."""
        return now - self._sent_s >= min(self.period_s / _PINGS_PER_PERIOD, LONGEST_PING_S)

    def is_stalled(self, now: float, path_rtt_s: float) -> bool:
        """Say whether a PING is unanswered, and nothing else came, for longer than it should be.

        `path_rtt_s` is TCP's round trip: a PONG may have waited behind much else.
        """
        if self._unanswered_s is None:
            return False
        return now - self._unanswered_s >= max(STALLED_S, 2 * path_rtt_s)

    def is_silent(self, now: float, *, within_s: float = 0.0) -> bool:
        """Say whether nothing was heard for a period, or will not have been `within_s` from now."""
        return now + within_s - self._heard_s >= self.period_s

    def is_stuck(self, now: float) -> bool:
        """Say whether nothing was heard for as long as nobody is silent who lives."""
        return now - self._heard_s >= STUCK_PERIODS * self.period_s
