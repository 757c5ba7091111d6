"""A room on the sender, its legs, and the chunks that its submissions are cut into."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prfaas.errors import TransferError
from prfaas.transfer.intervals import IntervalSet
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.reasons import Reason
from prfaas.wire import Chunk


@dataclass(frozen=True, eq=False, slots=True)
class Submission:
    """`items[i]` goes to position `start + i` of the grant, for every entry of the group."""

    group: int
    start: int
    items: Items


@dataclass(eq=False, slots=True)
class SendLeg:
    """A room towards one peer. Once `live` is False no payload of it may be read from memory."""

    room: int
    attempt: int
    peer: str
    session: int
    grants: tuple[int, ...]
    live: bool = True
    done: bool = False
    num_pending: int = 0
    next_chunk: int = 0

    def check_range(self, submission: Submission, group: str) -> None:
        """Raises: TransferError if a position is not one that the peer granted."""
        start, end = submission.start, submission.start + submission.items.size
        granted = self.grants[submission.group]
        if start < 0 or end > granted:
            text = f"{group}: positions {start}..{end} of {granted} that {self.peer} granted"
            raise TransferError(Reason.COUNT_MISMATCH, text)


@dataclass(frozen=True, eq=False, slots=True)
class ChunkOut:
    """A chunk to send: its frame, and the source items whose bytes are its payload."""

    leg: SendLeg
    frame: Chunk
    items: Items

    @property
    def key(self) -> tuple[int, int, int]:
        """What an ACK names the chunk by."""
        return self.frame.room, self.frame.attempt, self.frame.chunk


@dataclass(eq=False, slots=True)
class SendRoom:
    """All legs of a room; it succeeds or fails as a whole."""

    room: int
    deadline_s: float
    legs: dict[str, SendLeg] = field(default_factory=dict)
    submissions: list[Submission] = field(default_factory=list)
    submitted: dict[int, IntervalSet] = field(default_factory=dict)
    totals: tuple[int, ...] | None = None

    def add(self, submission: Submission) -> None:
        """Remember a submission, for coverage and for peers that open the room later."""
        start, end = submission.start, submission.start + submission.items.size
        self.submissions.append(submission)
        self.submitted.setdefault(submission.group, IntervalSet()).add(start, end)

    def missing(self, totals: tuple[int, ...]) -> dict[int, int]:
        """Return per group how many of `totals` were not submitted (negative: too many)."""
        counts = {group: len(held) for group, held in self.submitted.items()}
        gaps = {group: total - counts.get(group, 0) for group, total in enumerate(totals)}
        return {group: gap for group, gap in gaps.items() if gap}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a room ended; `reason` is empty if it was sent.

    `attempts` are the (session, attempt) of the legs it had, by peer.
    """

    reason: str
    detail: str
    attempts: Mapping[str, tuple[int, int]]
    until_s: float
    forgotten: bool = False


def items_per_chunk(item_bytes: int, chunk_bytes: int) -> int:
    """Return how many items one chunk holds: as many as fit, at least one.

    >>> items_per_chunk(65536, 1 << 20), items_per_chunk(3 << 20, 1 << 20)
    (16, 1)
    """
    return max(1, chunk_bytes // item_bytes)


def count_chunks(layout: Layout, group: int, num_items: int, chunk_bytes: int) -> int:
    """Return into how many chunks `num_items` items of a group are cut."""
    return sum(
        -(-num_items // items_per_chunk(entry.item_bytes, chunk_bytes))
        for entry in layout.groups[group].entries
    )


def cut_chunks(
    layout: Layout, leg: SendLeg, submission: Submission, chunk_bytes: int
) -> Iterator[ChunkOut]:
    """Yield the chunks of a submission, entry after entry, for as long as the leg is live."""
    for entry_index, entry in enumerate(layout.groups[submission.group].entries):
        step = items_per_chunk(entry.item_bytes, chunk_bytes)
        for offset in range(0, submission.items.size, step):
            if not leg.live:
                return
            items = submission.items[offset : offset + step]
            frame = Chunk(
                room=leg.room,
                attempt=leg.attempt,
                chunk=leg.next_chunk,
                group=submission.group,
                entry=entry_index,
                start=submission.start + offset,
                count=items.size,
                payload_bytes=items.size * entry.item_bytes,
            )
            leg.next_chunk += 1
            yield ChunkOut(leg, frame, items)
