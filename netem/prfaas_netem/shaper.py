"""When and how a packet leaves one direction of a user-space link. Pure: the clock and chance come
in."""

from collections.abc import Callable
from typing import NamedTuple

from prfaas_netem.jitter import spread
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import LossProcess

_MSS_BYTES = 1448
_HEADER_BYTES = 52  # IPv4 and TCP with timestamps, once per segment
_IP_HEADER_BITS = 160
_FRAME_BYTES = 14
_LARGEST_PACKET_BYTES = 1500


class Fate(NamedTuple):
    """What becomes of a packet that is not lost.

    It leaves at `due`; in order with the others unless it `overtakes`. `flipped_bit` is the bit,
    counted from the packet's first, that is wrong when it leaves, and `copy_due` the time at which
    a second, whole one leaves.
    """

    due: float
    overtakes: bool = False
    flipped_bit: int | None = None
    copy_due: float | None = None


class Shaper:
    """Delay, jitter, rate and all that may happen to packets of one direction.

    Order is kept but for packets that `reordering` picks: jitter never lets a packet overtake the
    one before it. Counters are for reading.
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
        self.corrupted_packets = 0
        self.duplicated_packets = 0
        self.reordered_packets = 0
        self.spec = spec

    @property
    def spec(self) -> LinkSpec:
        """What the direction does now; settable at any time."""
        return self._spec

    @spec.setter
    def spec(self, spec: LinkSpec) -> None:
        self._spec = spec
        self._loss = LossProcess(spec.loss_model, chance=self._chance)
        self._bytes_per_s = spec.rate_bits_per_s / 8
        self._backlog_limit_s = spec.queue_bytes / self._bytes_per_s

    def admit(self, now: float, length: int) -> Fate | None:
        """Return what becomes of a packet of `length` bytes (IP header included).

        None when it is dropped. A super-packet counts as the segments it stands for.
        """
        spec = self._spec
        segments = segments_of(length)
        if self._loss.hits(segments):
            self.lost_packets += segments
            return None
        start = max(now, self._idle_at)
        if start - now > self._backlog_limit_s:
            self.overflow_packets += segments
            return None
        self._transmit(start, length, segments)
        overtakes = self._happens(spec.reordering)
        if overtakes:
            self.reordered_packets += 1
            due = self._idle_at
        else:
            due = self._in_order(self._idle_at + spec.delay_s)
        flipped_bit = self._flipped_bit(length) if self._happens(spec.corruption) else None
        if not self._happens(spec.duplication):
            return Fate(due, overtakes, flipped_bit)
        self.duplicated_packets += 1
        self._transmit(self._idle_at, length, segments)
        return Fate(due, overtakes, flipped_bit, max(due, self._idle_at + spec.delay_s))

    def shift(self, seconds: float) -> None:
        """Move the order barrier with the packets still held, after their due times were moved."""
        self._last_due += seconds

    def _happens(self, share: float) -> bool:
        return share > 0 and self._chance() < share

    def _transmit(self, start: float, length: int, segments: int) -> None:
        wire_bytes = length + _FRAME_BYTES * segments + _HEADER_BYTES * (segments - 1)
        self._idle_at = start + wire_bytes / self._bytes_per_s
        self.packets += segments
        self.bytes += wire_bytes

    def _in_order(self, due: float) -> float:
        spec = self._spec
        if spec.jitter_s:
            deviation_s = spread(spec.jitter_distribution, self._chance) * spec.jitter_s
            due += max(deviation_s, -spec.delay_s)
        self._last_due = max(self._last_due, due)
        return self._last_due

    def _flipped_bit(self, length: int) -> int | None:
        bits = length * 8 - _IP_HEADER_BITS
        if bits <= 0:
            return None
        self.corrupted_packets += 1
        return _IP_HEADER_BITS + int(self._chance() * bits)


def segments_of(length: int) -> int:
    """Return how many wire packets a packet of `length` bytes stands for.

    >>> segments_of(1500), segments_of(52 + 3 * 1448)
    (1, 3)
    """
    if length <= _LARGEST_PACKET_BYTES:
        return 1
    return -(-(length - _HEADER_BYTES) // _MSS_BYTES)
