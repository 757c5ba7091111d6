"""Packets of one direction that wait for their time, and their verdicts in the right order."""

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from prfaas_netem.nfqueue_message import Packet
from prfaas_netem.shaper import Fate


class Verdicts(Protocol):
    """Where verdicts go: a `packet_queue.PacketQueue`."""

    def release(self, last_id: int) -> None:
        """Let a packet and all that came before it go."""

    def release_one(self, packet_id: int, payload: bytes | None = None) -> None:
        """Let one packet go, with other bytes where given."""


class Copies(Protocol):
    """Where second copies go: a `packet_copies.PacketCopies`."""

    def send(self, packet: bytes) -> None:
        """Send a whole packet."""


class _Held(NamedTuple):
    """A packet in the queue, with the bytes it shall leave with where they are others."""

    due: float
    id: int
    payload: bytes | None


class _Copy(NamedTuple):
    """A whole packet to send beside those of the queue."""

    due: float
    id: int
    packet: bytes


class HeldPackets:
    """Packets in order, freed by one verdict where possible, and beside them those out of order."""

    def __init__(self, verdicts: Verdicts, copies: Copies) -> None:
        self._verdicts = verdicts
        self._copies = copies
        self._in_order: deque[_Held] = deque()
        self._overtaking: list[_Held] = []
        self._second: list[_Copy] = []

    def __len__(self) -> int:
        return len(self._in_order) + len(self._overtaking) + len(self._second)

    def add(self, packet: Packet, fate: Fate) -> None:
        """Hold a packet. One of which not all bytes are known is neither changed nor copied."""
        is_whole = len(packet.payload) == packet.length
        payload = None
        if is_whole and fate.flipped_bit is not None:
            payload = flipped(packet.payload, fate.flipped_bit)
        if fate.overtakes:
            heapq.heappush(self._overtaking, _Held(fate.due, packet.id, payload))
        else:
            self._in_order.append(_Held(fate.due, packet.id, payload))
        if is_whole and fate.copy_due is not None:
            heapq.heappush(self._second, _Copy(fate.copy_due, packet.id, packet.payload))

    def shift(self, seconds: float) -> None:
        """Move the packets in order in time."""
        self._in_order = deque(
            _Held(due + seconds, packet_id, payload) for due, packet_id, payload in self._in_order
        )

    def release(self, now: float) -> None:
        """Let go what is due.

        Overtakers go first: the verdict on many packets at once would take them along. Copies go
        last, behind what they are copies of.
        """
        while self._overtaking and self._overtaking[0].due <= now:
            _, packet_id, payload = heapq.heappop(self._overtaking)
            self._verdicts.release_one(packet_id, payload)
        self._release_in_order(now)
        while self._second and self._second[0].due <= now:
            self._copies.send(heapq.heappop(self._second).packet)

    def _release_in_order(self, now: float) -> None:
        last_id = None
        while self._in_order and self._in_order[0].due <= now:
            _, packet_id, payload = self._in_order.popleft()
            if payload is None:
                last_id = packet_id
                continue
            if last_id is not None:
                self._verdicts.release(last_id)
                last_id = None
            self._verdicts.release_one(packet_id, payload)
        if last_id is not None:
            self._verdicts.release(last_id)

    def next_due(self) -> float | None:
        """Return when `release` has something to do."""
        queues: tuple[Sequence[_Held | _Copy], ...] = (
            self._in_order,
            self._overtaking,
            self._second,
        )
        dues = [queue[0].due for queue in queues if queue]
        return min(dues) if dues else None


def flipped(packet: bytes, bit: int) -> bytes:
    """Return a packet with one bit flipped.

    >>> flipped(bytes(2), 9).hex()
    '0040'
    """
    changed = bytearray(packet)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)
