"""When a packet leaves one direction of a user-space link. Pure: the clock and chance come in."""

from collections.abc import Callable

from prfaas_netem.link_spec import LinkSpec

_MSS_BYTES = 1448
_HEADER_BYTES = 52  # IPv4 and TCP with timestamps, once per segment
_FRAME_BYTES = 14
_LARGEST_PACKET_BYTES = 1500


class Shaper:
    """Delay, jitter, loss and rate of one direction.

    Order is kept: jitter never lets a packet overtake the one before it. Counters are for reading.
    """

    def __init__(self, spec: LinkSpec, *, chance: Callable[[], float]) -> None:
        """`chance` returns uniform numbers in [0, 1)."""
        self._chance = chance
        self._idle_at = 0.0
        self._last_due = 0.0
        self.packets = 0
        self.bytes = 0
        self.lost_packets = 0
        self.overflow_packets = 0
        self.spec = spec

    @property
    def spec(self) -> LinkSpec:
        """What the direction does now; settable at any time."""
        return self._spec

    @spec.setter
    def spec(self, spec: LinkSpec) -> None:
        self._spec = spec
        self._bytes_per_s = spec.rate_bits_per_s / 8
        self._backlog_limit_s = spec.queue_bytes / self._bytes_per_s

    def admit(self, now: float, length: int) -> float | None:
        """Return the time at which a packet of `length` bytes (IP header included) leaves.

        None when it is dropped. A super-packet counts as the segments it stands for.
        """
        spec = self._spec
        segments = segments_of(length)
        if spec.loss and self._chance() < _share_hit(spec.loss, segments):
            self.lost_packets += segments
            return None
        start = max(now, self._idle_at)
        if start - now > self._backlog_limit_s:
            self.overflow_packets += segments
            return None
        wire_bytes = length + _FRAME_BYTES * segments + _HEADER_BYTES * (segments - 1)
        self._idle_at = start + wire_bytes / self._bytes_per_s
        self.packets += segments
        self.bytes += wire_bytes
        due = self._idle_at + spec.delay_s
        if spec.jitter_s:
            due += (2 * self._chance() - 1) * spec.jitter_s
        self._last_due = max(self._last_due, due)
        return self._last_due

    def shift(self, seconds: float) -> None:
        """Move the order barrier with the packets still held, after their due times were moved."""
        self._last_due += seconds


def segments_of(length: int) -> int:
    """Return how many wire packets a packet of `length` bytes stands for.

    >>> segments_of(1500), segments_of(52 + 3 * 1448)
    (1, 3)
    """
    if length <= _LARGEST_PACKET_BYTES:
        return 1
    return -(-(length - _HEADER_BYTES) // _MSS_BYTES)


def _share_hit(loss: float, segments: int) -> float:
    return loss if segments == 1 else 1 - (1 - loss) ** segments
