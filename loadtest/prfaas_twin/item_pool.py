"""Items of a memory pool, given out in runs."""

from bisect import bisect_left, insort

import numpy as np

from prfaas.transfer.layout import Items

Runs = tuple[tuple[int, int], ...]
"""(first, end) of consecutive items, in the order of the grant."""


class ItemPool:
    """Gives out the lowest free items, so that memory that was never needed is never touched."""

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items
        self.num_free = num_items
        self._free: list[tuple[int, int]] = [(0, num_items)]

    def take(self, count: int) -> Runs | None:
        """Take so many items; None, and nothing taken, when there are not enough."""
        if count > self.num_free:
            return None
        self.num_free -= count
        runs = []
        while count:
            first, end = self._free.pop(0)
            taken = min(count, end - first)
            runs.append((first, first + taken))
            if first + taken < end:
                self._free.insert(0, (first + taken, end))
            count -= taken
        return tuple(runs)

    def give_back(self, runs: Runs) -> None:
        """Free items again; each must be taken."""
        for first, end in runs:
            self.num_free += end - first
            insort(self._free, self._merged(first, end))

    def _merged(self, first: int, end: int) -> tuple[int, int]:
        """Take the free runs beside this one out, and return the run with them."""
        at = bisect_left(self._free, (first, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == first:
            first = self._free.pop(at - 1)[0]
        return first, end


def items_of(runs: Runs) -> Items:
    """Return the items of runs, in order.

    >>> items_of(((3, 5), (8, 9))).tolist()
    [3, 4, 8]
    """
    if not runs:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([np.arange(first, end, dtype=np.int64) for first, end in runs])
