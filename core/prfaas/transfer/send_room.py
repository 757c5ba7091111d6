"""A room on the sender, its legs, and the chunks that its submissions are cut into."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prfaas.errors import TransferError
from prfaas.transfer.intervals import IntervalSet
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.reasons import Reason
from prfaas.wire import Chunk, Priority


@dataclass(frozen=True, eq=False, slots=True)
class Submission:
    """`items[i]` goes to position `start + i` of the grant, for these entries of the group.

    `ready` is the token that says when the items may be read; None: at once.
    """

    group: int
    start: int
    items: Items
    entries: range
    ready: int | None = None

    @property
    def end(self) -> int:
        """The position after the last one."""
        return self.start + int(self.items.size)

    def num_bytes(self, layout: Layout) -> int:
        """Return the payload of all its chunks."""
        entries = layout.groups[self.group].entries
        return int(self.items.size) * sum(entries[index].item_bytes for index in self.entries)


@dataclass(eq=False, slots=True)
class SendLeg:
    """A room towards one peer. Once `live` is False no payload of it may be read from memory.

    It is cut into chunks of `chunk_bytes`; the first was given to a lane at `first_byte_s`.
    `num_pending` of them are not acknowledged, `pending_bytes` are those of them that are ready.
    `waiting` are submissions that are not, by token. `is_queued` and `credit_bytes` are the
    `FairQueue`'s.
    """

    room: int
    attempt: int
    peer: str
    session: int
    grants: tuple[int, ...]
    priority: int = Priority.FOREGROUND
    chunk_bytes: int = 1 << 20
    live: bool = True
    done: bool = False
    num_pending: int = 0
    pending_bytes: int = 0
    next_chunk: int = 0
    first_byte_s: float | None = None
    is_queued: bool = False
    credit_bytes: int | None = None
    waiting: dict[int, list[Submission]] = field(default_factory=dict)
    queue: "deque[Iterator[ChunkOut]]" = field(default_factory=deque)
    resend: "deque[ChunkOut]" = field(default_factory=deque)

    @property
    def is_foreground(self) -> bool:
        """Say whether a request waits for the room."""
        return self.priority == Priority.FOREGROUND

    def peek(self) -> "ChunkOut | None":
        """Return the chunk to send next: first those that a dead lane lost."""
        if not self.live:
            return None
        while not self.resend and self.queue:
            chunk = next(self.queue[0], None)
            if chunk is None:
                self.queue.popleft()
            else:
                self.resend.append(chunk)
        return self.resend[0] if self.resend else None

    def take(self) -> "ChunkOut":
        """Take the chunk that `peek` returned."""
        return self.resend.popleft()

    def check_range(self, submission: Submission, group: str) -> None:
        """Raises: TransferError if a position is not one that the peer granted."""
        start, end = submission.start, submission.end
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
    """All legs of a room; it succeeds or fails as a whole.

    `submitted` are the positions per group: one set for all entries, or one for each as soon as a
    submission names entries. `ready` are the tokens that were marked so. Its first leg was opened
    at `opened_s` and says whether a request waits for it.
    """

    room: int
    deadline_s: float
    opened_s: float = 0.0
    is_foreground: bool = True
    legs: dict[str, SendLeg] = field(default_factory=dict)
    submissions: list[Submission] = field(default_factory=list)
    submitted: dict[int, list[IntervalSet]] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    totals: tuple[int, ...] | None = None

    def add(self, submission: Submission, num_entries: int) -> None:
        """Remember a submission, for coverage and for peers that open the room later."""
        self.submissions.append(submission)
        held = self.submitted.setdefault(submission.group, [IntervalSet()])
        whole = len(submission.entries) == num_entries
        if not whole and len(held) < num_entries:
            held += [held[0].copy() for _ in range(num_entries - 1)]
        for index in range(len(held)) if whole else submission.entries:
            held[index].add(submission.start, submission.end)

    def missing(self, totals: tuple[int, ...]) -> dict[int, int]:
        """Return per group how many of `totals` an entry lacks (negative: has too many)."""
        gaps = {
            group: [total - len(held) for held in self.submitted.get(group, [IntervalSet()])]
            for group, total in enumerate(totals)
        }
        return {group: max(gap, key=abs) for group, gap in gaps.items() if any(gap)}


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


def count_chunks(layout: Layout, leg: SendLeg, submission: Submission) -> int:
    """Return into how many chunks a submission is cut."""
    entries = layout.groups[submission.group].entries
    num_items = int(submission.items.size)
    return sum(
        -(-num_items // items_per_chunk(entries[index].item_bytes, leg.chunk_bytes))
        for index in submission.entries
    )


def cut_chunks(layout: Layout, leg: SendLeg, submission: Submission) -> Iterator[ChunkOut]:
    """Yield the chunks of a submission, entry after entry, for as long as the leg is live."""
    entries = layout.groups[submission.group].entries
    for entry_index in submission.entries:
        entry = entries[entry_index]
        step = items_per_chunk(entry.item_bytes, leg.chunk_bytes)
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
