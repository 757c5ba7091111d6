"""What owners hold of a prefix pool for a while: blocks to write, entries to read."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from prfaas.blocks.entry import Entry, State


@dataclass(slots=True)
class Reservation:
    """Entries being written. `chain` has all keys up to the last entry's end.

    `present` is how many leading pages were stored already; `pinned` is the path of the entries;
    `refused` says that some of what is missing cannot be written.
    """

    owner: int
    expires_s: float
    chain: bytes
    entries: list[Entry]
    pinned: tuple[Entry, ...] = ()
    present: int = 0
    refused: bool = False


@dataclass(slots=True)
class Blocks:
    """Blocks of a transfer that no entry describes."""

    owner: int
    expires_s: float
    blocks: tuple[int, ...] = ()


@dataclass(slots=True)
class Lease:
    """Entries being read: none of them is evicted meanwhile."""

    owner: int
    expires_s: float
    pinned: tuple[Entry, ...]


@dataclass(slots=True)
class Waiting:
    """A written state whose last page is not stored yet."""

    owner: int
    expires_s: float
    state: State


Hold = Reservation | Blocks | Lease | Waiting


@dataclass(slots=True)
class Holds:
    """All holds by their id, in order of expiry. O(log n)."""

    _by_id: dict[int, Hold] = field(default_factory=dict)
    _by_owner: dict[int, set[int]] = field(default_factory=dict)
    _expiry: list[tuple[float, int]] = field(default_factory=list)
    _next_id: int = 1

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, hold: Hold) -> int:
        """Keep a hold and return its id."""
        number, self._next_id = self._next_id, self._next_id + 1
        self._by_id[number] = hold
        self._by_owner.setdefault(hold.owner, set()).add(number)
        heapq.heappush(self._expiry, (hold.expires_s, number))
        if len(self._expiry) > 64 + 4 * len(self._by_id):
            self._expiry = [item for item in self._expiry if item[1] in self._by_id]
            heapq.heapify(self._expiry)
        return number

    def get(self, number: int, owner: int | None = None) -> Hold | None:
        """Return a hold; None where it is over, or not this owner's."""
        hold = self._by_id.get(number)
        return hold if hold is not None and owner in (None, hold.owner) else None

    def remove(self, number: int) -> Hold:
        """Forget a hold and return it."""
        hold = self._by_id.pop(number)
        numbers = self._by_owner[hold.owner]
        numbers.discard(number)
        if not numbers:
            del self._by_owner[hold.owner]
        return hold

    def of_owner(self, owner: int) -> list[int]:
        """Return the ids of all an owner holds."""
        return sorted(self._by_owner.get(owner, ()))

    def expired(self, now_s: float) -> Iterator[int]:
        """Return the ids of holds that are over by now; remove each before asking for the next."""
        while self._expiry and self._expiry[0][0] <= now_s:
            _, number = heapq.heappop(self._expiry)
            if number in self._by_id:
                yield number
