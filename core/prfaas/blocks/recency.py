"""In which order entries are evicted, and which are pinned."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from prfaas.blocks.entry import Entry, Path, Run, State


class Recency:
    """Unpinned entries by last use. Whatever hangs on an entry comes before it, and goes first.

    A state hangs on its run, a run on its parent. Whoever pins an entry pins all it hangs on.
    """

    def __init__(self) -> None:
        self._order: OrderedDict[Entry, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def oldest(self) -> Entry | None:
        """Return the entry to evict next; None where all are pinned."""
        return next(iter(self._order), None)

    def append(self, entry: Entry) -> None:
        """Add a new entry as just used; `settle` must follow."""
        self._order[entry] = None

    def settle(self, entries: Sequence[Entry]) -> None:
        """Bring new entries into order with what they hang on.

        Nothing is done for a run that another of them hangs on: that one brings it along.
        """
        for entry in entries:
            if not entry.dead and not (isinstance(entry, Run) and entry.children):
                self.touch_up(entry)

    def remove(self, entry: Entry) -> None:
        """Forget an entry, pinned or not."""
        self._order.pop(entry, None)

    def touch(self, path: Path, states: Iterable[Entry] = ()) -> None:
        """Count a use of a path and of states on it."""
        for entry in states:
            self._touch_one(entry)
        for run, _ in reversed(path.runs):
            self._touch_one(run)

    def touch_up(self, entry: Entry) -> None:
        """Count a use of an entry and of all it hangs on."""
        above: Entry | None = entry
        while above is not None:
            self._touch_one(above)
            above = _hangs_on(above)

    def pin(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """Keep entries from eviction until `unpin` gets what this returns."""
        pinned = tuple(entries)
        for entry in pinned:
            entry.pins += 1
            self._order.pop(entry, None)
        return pinned

    def unpin(self, pinned: tuple[Entry, ...], *, free: Callable[[Entry], None]) -> None:
        """Let entries go; `free` gets those that died meanwhile."""
        for entry in sorted(pinned, key=_depth, reverse=True):
            entry.pins -= 1
            if not entry.pins:
                if entry.dead:
                    free(entry)
                else:
                    self._order[entry] = None

    def _touch_one(self, entry: Entry) -> None:
        if entry in self._order:
            self._order.move_to_end(entry)


def _hangs_on(entry: Entry) -> Run | None:
    if isinstance(entry, State):
        return entry.run
    assert isinstance(entry, Run)
    return entry.parent


def _depth(entry: Entry) -> tuple[int, bool]:
    """Return what is larger for an entry than for what it hangs on."""
    if isinstance(entry, State):
        assert entry.run is not None
        return entry.run.first, True
    return entry.first, False
