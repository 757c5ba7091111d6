"""Bytes without meaning that open a new lane's congestion window before the first room needs it."""

import numpy as np

from prfaas.transfer.layout import Layout
from prfaas.transfer.send_room import ChunkOut, SendLeg
from prfaas.wire import Chunk

PIECE_BYTES = 128 << 10
LONGEST_S = 0.5

_NO_ROOM = 0  # attempts of rooms start at 1, so room 0 with attempt 0 is never open


class WarmUp:
    """Gives each new lane chunks of a room that no receiver opens, which it reads and discards.

    They go out only while the lane has nothing else to send, one piece at a time, until
    `warm_bytes` are sent or half a second has passed: a slow link is not kept busy for long.
    """

    def __init__(self, layout: Layout, warm_bytes: int) -> None:
        self._warm_bytes = warm_bytes
        self._left: dict[int, tuple[int, float]] = {}
        self._paused: set[int] = set()
        sizes = [
            (entry.item_bytes, group_at, entry_at)
            for group_at, group in enumerate(layout.groups)
            for entry_at, entry in enumerate(group.entries)
        ]
        self._item_bytes, self._group, self._entry = min(sizes)
        self._count = max(1, PIECE_BYTES // self._item_bytes)
        self._payload = memoryview(bytes(min(PIECE_BYTES, self._count * self._item_bytes)))
        self.leg = SendLeg(_NO_ROOM, 0, "", 0, ())

    @property
    def payload(self) -> list[memoryview]:
        """The payload of every piece."""
        return [self._payload]

    def start(self, lane: int, now: float) -> None:
        """Begin with a lane; not if no item is small enough for a piece."""
        if self._warm_bytes and self._item_bytes <= PIECE_BYTES:
            self._left[lane] = self._warm_bytes, now + LONGEST_S

    def stop(self, lane: int) -> None:
        """Forget a lane."""
        self._left.pop(lane, None)
        self._paused.discard(lane)

    def next_piece(self, lane: int, now: float) -> ChunkOut | None:
        """Return every other time a piece for a lane that is being warmed up, so that each is sent
        before the next is asked for."""
        if lane not in self._left:
            return None
        if lane in self._paused:
            self._paused.discard(lane)
            return None
        left, until_s = self._left[lane]
        if left <= 0 or now >= until_s:
            self.stop(lane)
            return None
        self._paused.add(lane)
        size = len(self._payload)
        self._left[lane] = left - size, until_s
        frame = Chunk(_NO_ROOM, 0, 0, self._group, self._entry, 0, self._count, size)
        return ChunkOut(self.leg, frame, np.empty(0, np.int64))
