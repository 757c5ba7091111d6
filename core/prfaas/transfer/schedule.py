"""Whose chunk goes out next: rooms in fair turns, and the share of what nobody waits for."""

from collections import deque
from dataclasses import dataclass

from prfaas.transfer.send_room import SendLeg
from prfaas.transfer.signals import PeerSignals

FRESH_TURNS = 4


class FairQueue:
    """Legs that have chunks to send, in turns of `quantum_bytes` each.

    Legs that have not used up their first quantum go before the others, so that small rooms do not
    wait for large ones; but after `FRESH_TURNS` turns of theirs one of the others' follows. What a
    large chunk takes beyond the quantum is worked off in later turns: over time all legs send the
    same number of bytes. A chunk costs one step, and one more for every quantum in its bytes.

    Source: Shreedhar and Varghese, Efficient Fair Queueing Using Deficit Round Robin; RFC 8290
    (new flows first).
    """

    def __init__(self, quantum_bytes: int) -> None:
        self._quantum_bytes = quantum_bytes
        self._fresh: deque[SendLeg] = deque()
        self._rest: deque[SendLeg] = deque()
        self._fresh_turns = 0

    def add(self, leg: SendLeg) -> None:
        """Have a leg take part, until it has nothing to send."""
        if leg.is_queued:
            return
        leg.is_queued = True
        if leg.credit_bytes is None:
            leg.credit_bytes = self._quantum_bytes
        (self._fresh if leg.credit_bytes > 0 else self._rest).append(leg)

    def next_leg(self) -> SendLeg | None:
        """Return the leg whose turn it is; charge what it sends before asking again."""
        while ring := self._ring():
            leg = ring[0]
            if leg.peek() is None:
                leg.is_queued = False
                self._end_turn(ring)
            elif self._credit(leg) > 0:
                return leg
            else:
                leg.credit_bytes = self._credit(leg) + self._quantum_bytes
                self._end_turn(ring)
                self._rest.append(leg)
        return None

    def charge(self, leg: SendLeg, num_bytes: int) -> None:
        """Count bytes that the leg was given."""
        leg.credit_bytes = self._credit(leg) - num_bytes

    def _credit(self, leg: SendLeg) -> int:
        return self._quantum_bytes if leg.credit_bytes is None else leg.credit_bytes

    def _ring(self) -> deque[SendLeg]:
        if self._fresh and self._rest:
            return self._rest if self._fresh_turns >= FRESH_TURNS else self._fresh
        return self._fresh or self._rest

    def _end_turn(self, ring: deque[SendLeg]) -> None:
        ring.popleft()
        self._fresh_turns = self._fresh_turns + 1 if ring is self._fresh else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundLimits:
    """How much background rooms may send.

    share: of the bytes that foreground rooms send, while there are any.
    floor_bytes_per_s: what they get in any case, so that they end even if foreground rooms stall.
    tail_s: for how long after the last foreground byte was acknowledged that holds.
    window_bytes: per peer, what may be unacknowledged at other times until the path was measured: a
        foreground room that starts waits for that at most. After that it follows the path, up to
        `max_window_bytes`.
    chunk_bytes: most payload bytes of a chunk.
    """

    share: float = 0.02
    floor_bytes_per_s: float = 256 << 10
    tail_s: float = 0.2
    window_bytes: int = 2 << 20
    max_window_bytes: int = 64 << 20
    chunk_bytes: int = 256 << 10

    def window(self, signals: PeerSignals) -> int:
        """Return the window for a path: a little more than fits into it, so that it stays full."""
        if not signals.available_bytes_per_s or not signals.min_rtt_s:
            return self.window_bytes
        fits_bytes = signals.available_bytes_per_s * signals.min_rtt_s
        return min(int(1.25 * fits_bytes) + 2 * self.chunk_bytes, self.max_window_bytes)


class Traffic:
    """How much foreground there is on any lane of the sender, and what that leaves for the rest."""

    def __init__(self, limits: BackgroundLimits) -> None:
        self._limits = limits
        self._now = 0.0
        self._quiet_s = float("-inf")
        self._credit_bytes = 0.0
        self._is_held_back = False
        self.foreground_bytes = 0
        """Foreground bytes sent and not acknowledged."""

    def advance(self, now: float) -> None:
        """Let time pass."""
        if now <= self._now:
            return
        if self.is_busy:
            self._earn(self._limits.floor_bytes_per_s * (now - self._now))
        self._now = now

    @property
    def is_busy(self) -> bool:
        """Say whether foreground is under way or was a moment ago."""
        return self.foreground_bytes > 0 or self._now < self._quiet_s

    def sent(self, num_bytes: int, *, is_foreground: bool) -> None:
        """A chunk was given to a lane."""
        if is_foreground:
            self.foreground_bytes += num_bytes
            self._earn(self._limits.share * num_bytes)
        elif self.is_busy:
            self._credit_bytes -= num_bytes

    def settled(self, num_bytes: int, *, is_foreground: bool) -> None:
        """A chunk was acknowledged, or its lane or room ended."""
        if is_foreground:
            self.foreground_bytes -= num_bytes
            if not self.foreground_bytes:
                self._quiet_s = self._now + self._limits.tail_s

    def allows(
        self,
        num_bytes: int,
        *,
        in_flight_bytes: int,
        window_bytes: int,
        is_outranked: bool,
    ) -> bool:
        """Say whether a background chunk may go to a peer that has `in_flight_bytes` of them.

        One at a time and within the share while there is foreground or some waits for the same peer
        (`is_outranked`), else up to the window.
        """
        if not self.is_busy and not is_outranked:
            return not in_flight_bytes or in_flight_bytes + num_bytes <= window_bytes
        is_allowed = self._credit_bytes > 0 and not in_flight_bytes
        self._is_held_back = self._is_held_back or not is_allowed
        return is_allowed

    def next_timer(self) -> float | None:
        """Return when a chunk that was held back may go without an ACK having come, or None."""
        times = []
        if self._is_held_back and self._credit_bytes <= 0:
            wait_s = (1 - self._credit_bytes) / self._limits.floor_bytes_per_s
            times.append(self._now + wait_s)
        if self._is_held_back and not self.foreground_bytes:
            times.append(max(self._now, self._quiet_s))
        return min(times, default=None)

    def on_timer(self) -> None:
        """Forget that something was held back; it will be asked for again."""
        self._is_held_back = False

    def _earn(self, num_bytes: float) -> None:
        self._credit_bytes = min(self._credit_bytes + num_bytes, float(self._limits.chunk_bytes))
