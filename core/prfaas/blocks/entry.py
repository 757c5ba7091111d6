"""What a prefix pool stores: runs of KV pages, and states that hang on them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from prfaas.blocks.block_layout import KEY_BYTES, KV


@dataclass(eq=False, slots=True)
class Entry:
    """Some items of consecutive pages of one chain. Changed by the pool alone.

    `oid` grows with every entry that is stored, 0 before, so what hangs on another has a larger
    one; `first` is the position of the first page in its chain; `pins` counts
    who reads it; a `dead` entry is in no index any more and is freed with its last pin.
    """

    oid: int
    group: str
    first: int
    keys: bytes
    item_bytes: int
    blocks: tuple[int, ...]
    pins: int = 0
    dead: bool = False

    @property
    def count(self) -> int:
        """How many items it has."""
        return len(self.keys) // KEY_BYTES

    @property
    def end(self) -> int:
        """The position after its last page."""
        return self.first + self.count


@dataclass(eq=False, slots=True)
class Run(Entry):
    """Full-attention KV of consecutive pages; `parent` is the run of the page before the first.

    `states` has for the offset of a page the states that end there, by group.
    """

    parent: "Run | None" = None
    children: "set[Run]" = field(default_factory=set)
    states: "dict[tuple[int, str], State]" = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class State(Entry):
    """States of consecutive pages, usable only with the whole prefix; `run` holds its last page."""

    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The stored part of a chain, from its start: runs, and how many pages of each."""

    runs: tuple[tuple[Run, int], ...] = ()

    @property
    def pages(self) -> int:
        """How many leading pages of the chain are stored."""
        if not self.runs:
            return 0
        run, used = self.runs[-1]
        return run.first + used

    def until(self, pages: int) -> "Path":
        """Return the part that has the first `pages` pages."""
        kept = [(run, min(used, pages - run.first)) for run, used in self.runs if run.first < pages]
        return Path(tuple(kept))

    def states(self, group: str) -> Iterator[State]:
        """Return a group's states that end on the path, in no order."""
        for run, used in self.runs:
            for (offset, name), state in run.states.items():
                if name == group and offset < used:
                    yield state


def split_keys(keys: bytes) -> list[bytes]:
    """Return the single keys."""
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


def is_run(group: str) -> bool:
    """Tell whether a group's items match page by page."""
    return group == KV
