"""The tree of stored chains: which leading pages of a chain are there, and which states."""

from collections.abc import Iterator

from prfaas.blocks.block_layout import KEY_BYTES
from prfaas.blocks.entry import Path, Run, State


class ChainTree:
    """Runs of pages, found by the key of their first page.

    A key stands for its page and all before it, so equal keys mean equal prefixes, and keys of two
    chains are equal up to a position and different ever after. A run's parent is always stored.
    """

    def __init__(self) -> None:
        self._by_first: dict[bytes, Run] = {}

    def __len__(self) -> int:
        return len(self._by_first)

    def walk(self, keys: bytes) -> Path:
        """Return the stored part of a chain. O(pages)."""
        position = 0
        path: list[tuple[Run, int]] = []
        while position * KEY_BYTES < len(keys):
            at = position * KEY_BYTES
            run = self._by_first.get(keys[at : at + KEY_BYTES])
            if run is None or run.first != position:
                break
            used = _common_pages(run.keys, keys[at : at + len(run.keys)])
            path.append((run, used))
            position += used
        return Path(tuple(path))

    def add_run(self, run: Run) -> None:
        """Store a run whose parent is set and stored, and whose first key is not."""
        assert run.keys[:KEY_BYTES] not in self._by_first
        self._by_first[run.keys[:KEY_BYTES]] = run
        if run.parent is not None:
            run.parent.children.add(run)

    def remove_run(self, run: Run) -> None:
        """Remove a run that has neither children nor states."""
        assert not run.children
        assert not run.states
        del self._by_first[run.keys[:KEY_BYTES]]
        if run.parent is not None:
            run.parent.children.discard(run)

    def add_state(self, state: State, run: Run) -> bool:
        """Hang a state on the run that has its last page; False where there is one already."""
        where = (state.end - 1 - run.first, state.group)
        if where in run.states:
            return False
        run.states[where] = state
        state.run = run
        return True

    def remove_state(self, state: State) -> None:
        """Remove a state from its run."""
        assert state.run is not None
        del state.run.states[state.end - 1 - state.run.first, state.group]


def descendants(run: Run) -> Iterator[Run]:
    """Return all runs below a run, every one before its parent."""
    waiting = list(run.children)
    order: list[Run] = []
    while waiting:
        below = waiting.pop()
        order.append(below)
        waiting.extend(below.children)
    return reversed(order)


def covered_lengths(path: Path, group: str, trailing: int, *, start: int = 0) -> set[int]:
    """Return the lengths in pages at which the last `trailing` pages have states of a group.

    Only pages from `start` on need one.
    """
    covered = bytearray(path.pages)
    for state in path.states(group):
        covered[state.first : state.end] = b"\1" * state.count
    lengths = set()
    streak = 0
    for position, has_state in enumerate(covered):
        streak = streak + 1 if has_state else 0
        if position >= start and streak >= min(trailing, position + 1 - start):
            lengths.add(position + 1)
    return lengths


def _common_pages(left: bytes, right: bytes) -> int:
    """Return how many leading keys are equal, of two pieces whose first keys are."""
    if left == right:
        return len(left) // KEY_BYTES
    low, high = 1, min(len(left), len(right)) // KEY_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        at = (middle - 1) * KEY_BYTES
        if left[at : at + KEY_BYTES] == right[at : at + KEY_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
