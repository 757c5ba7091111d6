"""A room on the receiver: what was granted, what is there."""

from dataclasses import dataclass, field

from prfaas.transfer.events import Address
from prfaas.transfer.intervals import IntervalSet
from prfaas.transfer.layout import Items, Layout
from prfaas.wire import Chunk, Priority


@dataclass(eq=False, slots=True)
class ReceiveRoom:
    """Counts items per entry of every group. Once `live` is False nothing may be written.

    `grants` are the destination items per layout group. It was opened at `opened_s`, its first
    chunk began to arrive at `first_byte_s`.
    """

    room: int
    attempt: int
    address: Address
    deadline_s: float
    prefix_tokens: int
    grants: tuple[Items, ...]
    priority: Priority = Priority.FOREGROUND
    opened_s: float = 0.0
    first_byte_s: float | None = None
    live: bool = True
    finished: bool = False
    num_missing: int = 0
    num_damaged: int = 0
    held: dict[tuple[int, int], IntervalSet] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        layout: Layout,
        grants: tuple[Items, ...],
        *,
        room: int,
        attempt: int,
        address: Address,
        deadline_s: float,
        prefix_tokens: int,
        priority: Priority,
    ) -> "ReceiveRoom":
        """Return a room that misses every granted item of every entry."""
        state = cls(room, attempt, address, deadline_s, prefix_tokens, grants, priority)
        sizes = zip(layout.groups, grants, strict=True)
        state.num_missing = sum(len(group.entries) * items.size for group, items in sizes)
        return state

    @property
    def counts(self) -> tuple[int, ...]:
        """Items granted per group."""
        return tuple(items.size for items in self.grants)

    def is_granted(self, chunk: Chunk) -> bool:
        """Say whether the chunk lies within the grant of its group."""
        return chunk.start + chunk.count <= self.grants[chunk.group].size

    def destination(self, chunk: Chunk) -> Items:
        """Return the destination items of a granted chunk."""
        return self.grants[chunk.group][chunk.start : chunk.start + chunk.count]

    def has(self, chunk: Chunk) -> bool:
        """Say whether all items of the chunk are in place already."""
        held = self.held.get((chunk.group, chunk.entry))
        return held is not None and held.covers(chunk.start, chunk.start + chunk.count)

    def has_any(self, chunk: Chunk) -> bool:
        """Say whether an item of the chunk is in place already."""
        held = self.held.get((chunk.group, chunk.entry))
        return held is not None and held.touches(chunk.start, chunk.start + chunk.count)

    def add(self, chunk: Chunk) -> None:
        """Count a chunk whose payload is in place."""
        held = self.held.setdefault((chunk.group, chunk.entry), IntervalSet())
        self.num_missing -= held.add(chunk.start, chunk.start + chunk.count)

    @property
    def is_complete(self) -> bool:
        """Say whether FIN agreed and every item is in place."""
        return self.finished and self.num_missing == 0


def overlap(one: Chunk, other: Chunk) -> bool:
    """Say whether two chunks of a room carry an item of an entry both."""
    return (
        (one.group, one.entry) == (other.group, other.entry)
        and one.start < other.start + other.count
        and other.start < one.start + one.count
    )
