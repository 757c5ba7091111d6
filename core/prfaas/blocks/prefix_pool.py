"""The hybrid prefix pool of a host: blocks, what is in them, and who may have them next.

An owner (a process that uses the pool) *reserves* blocks for items of a chain, writes them, and
*commits*; another *matches* a chain and *reads* under a lease. A match is the longest prefix for
which the KV of every page and all states that the model needs are there. What nobody reads or
writes is evicted, least recently used first, a state before the KV it hangs on and the tail of a
chain before its head, so that everything stored can be matched.

Holds end at their time, with their owner, or when given back. Not thread-safe; one process runs it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prfaas.blocks.block_layout import KEY_BYTES, ItemLayout
from prfaas.blocks.chain_tree import ChainTree, covered_lengths, descendants
from prfaas.blocks.entry import Entry, Path, Run, State, is_run, split_keys
from prfaas.blocks.free_list import Category, FreeList
from prfaas.blocks.holds import Blocks, Holds, Lease, Reservation, Waiting
from prfaas.blocks.pieces import Piece, missing_spans, pieces
from prfaas.blocks.recency import Recency
from prfaas.blocks.restore import Restoring

MAX_HOLDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Match:
    """What is stored of a chain, in pages from its start.

    `usable`: lengths, ascending, that can be resumed from; `kv_pages` may be longer than the last
    of them; `boundaries` has per state group its longest length.
    """

    kv_pages: int
    usable: tuple[int, ...]
    boundaries: dict[str, int]


@dataclass(slots=True)
class Counts:
    """What happened since the start."""

    committed: int = 0
    evicted: int = 0
    duplicates: int = 0
    orphans: int = 0
    refused: int = 0
    expired: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Committed:
    """What became of a reservation: `stored` is in the index now, `waiting` when its KV is.

    `refused` entries are in neither; what another stored meanwhile is not counted.
    """

    stored: list[Entry] = field(default_factory=list)
    waiting: int = 0
    refused: int = 0


class PrefixPool:
    """`num_blocks` blocks of `block_bytes`; times are seconds of any clock that does not go back.

    `freed` collects entries whose blocks may get other contents: whoever keeps a record of entries
    forgets these, and clears the list, before anything is written.
    """

    def __init__(
        self, num_blocks: int, block_bytes: int, quotas: Mapping[Category, int] | None = None
    ) -> None:
        self.block_bytes = block_bytes
        self.blocks = FreeList(num_blocks, quotas)
        self.freed: list[Entry] = []
        self.counts = Counts()
        self._tree = ChainTree()
        self._holds = Holds()
        self._recency = Recency()
        #: By the key of the page that is missing and by group.
        self._waiting: dict[bytes, dict[str, int]] = {}
        self._next_oid = 1

    @property
    def num_entries(self) -> int:
        """Entries that can be matched or evicted, without pinned ones."""
        return len(self._recency)

    @property
    def num_holds(self) -> int:
        """Reservations, leases and waiting states."""
        return len(self._holds)

    def match(self, chain: bytes, trailing: Mapping[str, int], *, start: int = 0) -> Match:
        """Return what is stored of a chain for a model that needs these state groups.

        `trailing` says for each how many of the last pages need its states, as far as these are not
        before `start`: the caller has those. Counts as a use.
        """
        path = self._tree.walk(chain)
        usable = set(range(1, path.pages + 1))
        boundaries = {}
        for group, pages in trailing.items():
            lengths = covered_lengths(path, group, pages, start=start)
            boundaries[group] = max(lengths, default=0)
            usable &= lengths
        self._recency.touch(path)
        return Match(path.pages, tuple(sorted(usable)), boundaries)

    def reserve(
        self,
        chain: bytes,
        first: int,
        *,
        group: str,
        item_bytes: int,
        owner: int,
        expires_s: float,
        category: Category = Category.PREFIX,
    ) -> tuple[int, Reservation]:
        """Reserve blocks for the items of pages `first` to the end of `chain`.

        Items that are stored already are left out, and so is what finds no room; id 0 where nothing
        is left to write. KV needs all pages before it stored.
        """
        path = self._tree.walk(chain)
        self._recency.touch(path)
        max_items = ItemLayout(item_bytes, self.block_bytes).max_items
        end = len(chain) // KEY_BYTES
        reservation = Reservation(owner, expires_s, chain, [], present=path.pages)
        if len(self._holds) >= MAX_HOLDS or (is_run(group) and path.pages < first):
            self.counts.refused += 1
            reservation.refused = True
            return 0, reservation
        reservation.pinned = self._recency.pin(run for run, _ in path.runs)
        for start, stop in missing_spans(path, group, first, end, max_items=max_items):
            keys = chain[start * KEY_BYTES : stop * KEY_BYTES]
            entry = self._new_entry(group, start, keys, item_bytes, category)
            if entry is None:
                self.counts.refused += 1
                reservation.refused = True
                break
            reservation.entries.append(entry)
        if not reservation.entries:
            self._recency.unpin(reservation.pinned, free=self._free)
            return 0, reservation
        return self._holds.add(reservation), reservation

    def reserve_blocks(self, count: int, *, owner: int, expires_s: float) -> tuple[int, Blocks]:
        """Reserve blocks for one transfer; id 0 where there is no room."""
        blocks = None
        if len(self._holds) < MAX_HOLDS and self._make_room(Category.TRANSFER, count):
            blocks = self.blocks.take(Category.TRANSFER, count)
        if not blocks:
            self.counts.refused += 1
            return 0, Blocks(owner, expires_s)
        hold = Blocks(owner, expires_s, blocks)
        return self._holds.add(hold), hold

    def reservation(self, number: int, *, owner: int) -> Reservation | None:
        """Return an owner's reservation; None where it is over."""
        hold = self._holds.get(number, owner)
        return hold if isinstance(hold, Reservation) else None

    def commit(self, number: int, *, owner: int, expires_s: float) -> Committed | None:
        """Put a written reservation into the index; None where it is over.

        A state whose last page is not stored waits for it until `expires_s`.
        """
        reservation = self.reservation(number, owner=owner)
        if reservation is None:
            return None
        self._holds.remove(number)
        done = Committed()
        path = self._tree.walk(reservation.chain)
        parent = path.runs[-1][0] if path.runs else None
        for entry in reservation.entries:
            if isinstance(entry, State):
                self._commit_state(entry, path, reservation.owner, expires_s, done)
            elif isinstance(entry, Run) and self._commit_run(entry, parent, path.pages, done):
                parent = entry
        done.stored = [entry for entry in done.stored if not entry.dead]
        self._recency.settle(done.stored)
        self._recency.unpin(reservation.pinned, free=self._free)
        return done

    def read(
        self, chain: bytes, first: int, *, group: str, owner: int, expires_s: float
    ) -> tuple[int, list[Piece]]:
        """Lease the items of pages `first` to the end of `chain`, as far as they are stored.

        Id 0 where there are none.
        """
        path = self._tree.walk(chain)
        found = pieces(path, group, first)
        if not found or len(self._holds) >= MAX_HOLDS:
            return 0, []
        entries = {piece.entry: None for piece in found if isinstance(piece.entry, State)}
        self._recency.touch(path, entries)
        pinned = self._recency.pin([*entries, *(run for run, _ in path.runs)])
        return self._holds.add(Lease(owner, expires_s, pinned)), found

    def release(self, number: int, *, owner: int) -> bool:
        """End a lease or give up a reservation; False where it is over already."""
        if self._holds.get(number, owner) is None:
            return False
        self._end_hold(number)
        return True

    def release_owner(self, owner: int) -> None:
        """End all that an owner holds, as when its process ended."""
        for number in self._holds.of_owner(owner):
            self._end_hold(number)

    def expire(self, now_s: float) -> None:
        """End all holds whose time is over."""
        for number in self._holds.expired(now_s):
            self.counts.expired += 1
            self._end_hold(number)

    def drop(self, chain: bytes, first: int, *, group: str) -> list[Entry]:
        """Forget the entry that has an item, found damaged, and all that hangs on it.

        Returns them. A reader's lease still keeps their blocks.
        """
        found = pieces(self._tree.walk(chain), group, first)
        gone = self._remove(found[0].entry) if found else []
        self.counts.dropped += len(gone)
        return gone

    def restore(self, entries: Iterable[tuple[Entry, bytes]]) -> list[Entry]:
        """Fill an empty pool with entries left by another, each with the key of the page before it.

        Returns what cannot be used: what shares a block with another, and all that hangs on that.
        Ids count on from the highest.
        """
        restoring = Restoring(self._tree, self.blocks)
        for entry, parent_key in sorted(entries, key=lambda item: item[0].oid):
            self._next_oid = max(self._next_oid, entry.oid + 1)
            restoring.add(entry, parent_key)
        self.blocks.rebuild()
        for entry in restoring.kept:
            self._recency.append(entry)
        self._recency.settle(restoring.kept)
        return restoring.lost

    def _new_entry(
        self, group: str, first: int, keys: bytes, item_bytes: int, category: Category
    ) -> Entry | None:
        count = ItemLayout(item_bytes, self.block_bytes).blocks(len(keys) // KEY_BYTES)
        if not self._make_room(category, count):
            return None
        blocks = self.blocks.take(category, count)
        assert blocks is not None
        kind = Run if is_run(group) else State
        return kind(0, group, first, keys, item_bytes, blocks)

    def _commit_run(self, run: Run, parent: Run | None, stored_pages: int, done: Committed) -> bool:
        """Store a run below the last stored one of its chain."""
        end = stored_pages if parent is None or parent.first < stored_pages else parent.end
        if not self._make_prefix(run):
            done.refused += 1
            return False
        if end != run.first or (parent is not None and parent.dead):  # evicted just now, perhaps
            done.refused += end <= run.first
            self._discard(run, duplicate=end > run.first)
            return False
        run.parent = parent
        self._tree.add_run(run)
        self._count_stored(run, done)
        for key in split_keys(run.keys) if self._waiting else ():
            for number in list(self._waiting.get(key, {}).values()):
                self._attach(self._forget_waiting(number).state, run, done)
        return True

    def _commit_state(
        self, state: State, path: Path, owner: int, expires_s: float, done: Committed
    ) -> None:
        if not self._make_prefix(state):
            done.refused += 1
            return
        path = path.until(state.end)
        if path.pages == state.end and not path.runs[-1][0].dead:
            self._attach(state, path.runs[-1][0], done)
            return
        anchor = state.keys[-KEY_BYTES:]
        older = self._waiting.get(anchor, {}).get(state.group)
        if older is not None:
            self._end_hold(older)
        number = self._holds.add(Waiting(owner, expires_s, state))
        self._waiting.setdefault(anchor, {})[state.group] = number
        done.waiting += 1

    def _attach(self, state: State, run: Run, done: Committed) -> None:
        if self._tree.add_state(state, run):
            self._count_stored(state, done)
        else:
            self._discard(state, duplicate=True)

    def _count_stored(self, entry: Entry, done: Committed) -> None:
        entry.oid, self._next_oid = self._next_oid, self._next_oid + 1
        self._recency.append(entry)
        self.counts.committed += 1
        done.stored.append(entry)

    def _forget_waiting(self, number: int) -> Waiting:
        waiting = self._holds.remove(number)
        assert isinstance(waiting, Waiting)
        anchor = waiting.state.keys[-KEY_BYTES:]
        del self._waiting[anchor][waiting.state.group]
        if not self._waiting[anchor]:
            del self._waiting[anchor]
        return waiting

    def _make_prefix(self, entry: Entry) -> bool:
        """Count an entry's blocks as prefix cache; give them back where the quota is used up."""
        if self.blocks.move(entry.blocks, Category.PREFIX):
            return True
        self._evict(self.blocks.over_quota(Category.PREFIX, len(entry.blocks)))
        if self.blocks.move(entry.blocks, Category.PREFIX):
            return True
        self.counts.refused += 1
        self._free(entry)
        return False

    def _discard(self, entry: Entry, *, duplicate: bool) -> None:
        if duplicate:
            self.counts.duplicates += 1
        else:
            self.counts.orphans += 1
        self._free(entry)

    def _make_room(self, category: Category, count: int) -> bool:
        shortage = self.blocks.shortage(category, count)
        if category is Category.PREFIX or not self.blocks.over_quota(category, count):
            self._evict(shortage)
        return not self.blocks.shortage(category, count)

    def _evict(self, num_blocks: int) -> None:
        """Evict until that many blocks are free or nothing is left that may go."""
        while num_blocks > 0 and (entry := self._recency.oldest()) is not None:
            num_blocks -= len(entry.blocks)
            self.counts.evicted += 1
            self._remove(entry)

    def _remove(self, entry: Entry) -> list[Entry]:
        """Take an entry out of the index, with all that hangs on it; return them."""
        gone: list[Entry] = []
        if isinstance(entry, State):
            self._tree.remove_state(entry)
            gone.append(entry)
        elif isinstance(entry, Run):
            for run in [*descendants(entry), entry]:
                gone += [*run.states.values(), run]
                for state in list(run.states.values()):
                    self._tree.remove_state(state)
                self._tree.remove_run(run)
        for item in gone:
            self._bury(item)
        return gone

    def _bury(self, entry: Entry) -> None:
        entry.dead = True
        self._recency.remove(entry)
        if not entry.pins:
            self._free(entry)

    def _free(self, entry: Entry) -> None:
        self.blocks.give_back(entry.blocks)
        self.freed.append(entry)

    def _end_hold(self, number: int) -> None:
        hold = self._holds.get(number)
        if isinstance(hold, Waiting):
            self._free(self._forget_waiting(number).state)
            return
        hold = self._holds.remove(number)
        if isinstance(hold, Blocks):
            self.blocks.give_back(hold.blocks)
        elif isinstance(hold, Reservation):
            for entry in hold.entries:
                self._free(entry)
        if isinstance(hold, Reservation | Lease):
            self._recency.unpin(hold.pinned, free=self._free)
