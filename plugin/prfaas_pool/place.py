"""Where items are in an arena: what a client leased to read or reserved to write."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas_pool.arena import Arena

Item = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Place:
    """The memory of one item; `digest` is what its bytes must have, empty while it is written."""

    arena: Arena
    blocks: tuple[int, ...]
    offset: int
    item_bytes: int
    digest: bytes = b""

    def read(self) -> Item:
        """Return a copy of the bytes."""
        return self.arena.read(self.blocks, self.offset, self.item_bytes)

    def write(self, data: Item) -> None:
        """Copy bytes there."""
        self.arena.write(self.blocks, self.offset, data)

    def views(self) -> list[memoryview]:
        """Return the memory itself, a view for each block that it spans."""
        spans = self.arena.spans(self.blocks, self.offset, self.item_bytes)
        return [span.data for span in spans]


@dataclass(frozen=True, slots=True)
class Leased:
    """Items that are not evicted until `number` is released or its time is over."""

    number: int
    places: list[Place]


@dataclass(frozen=True, slots=True)
class ReservedEntry:
    """`count` items from page `first` on, in these blocks from byte `offset` on."""

    first: int
    count: int
    blocks: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """Blocks to write; `number` is 0, and `stored` final, where there is nothing to write.

    `is_partial`: the pool had no room for the rest.
    """

    number: int
    arena: Arena
    group: str
    item_bytes: int
    entries: list[ReservedEntry]
    stored: int
    is_partial: bool

    def place(self, entry: ReservedEntry, position: int) -> Place:
        """Return the place of a page's item."""
        offset = entry.offset + (position - entry.first) * self.item_bytes
        return Place(self.arena, entry.blocks, offset, self.item_bytes)

    def places(self) -> Iterator[tuple[int, Place]]:
        """Return the position and place of every item, in the order that `commit` wants."""
        for entry in self.entries:
            for position in range(entry.first, entry.first + entry.count):
                yield position, self.place(entry, position)
