"""A set of integers kept as disjoint half-open intervals."""

from bisect import bisect_left, bisect_right


class IntervalSet:
    """Grows by intervals and knows how much it holds.

    >>> held = IntervalSet()
    >>> held.add(0, 4), held.add(2, 6), len(held), held.covers(1, 6)
    (4, 2, 6, True)
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, start: int, end: int) -> int:
        """Add `start .. end-1`; return how many of these were new."""
        if start >= end:
            return 0
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        held = 0
        for index in range(first, last):
            held += min(end, self._ends[index]) - max(start, self._starts[index])
        if first < last:
            start_all = min(start, self._starts[first])
            end_all = max(end, self._ends[last - 1])
        else:
            start_all, end_all = start, end
        self._starts[first:last] = [start_all]
        self._ends[first:last] = [end_all]
        self._size += end - start - held
        return end - start - held

    def covers(self, start: int, end: int) -> bool:
        """Say whether all of `start .. end-1` is held."""
        index = bisect_right(self._starts, start) - 1
        return start >= end or (index >= 0 and self._ends[index] >= end)

    def touches(self, start: int, end: int) -> bool:
        """Say whether any of `start .. end-1` is held."""
        index = bisect_right(self._ends, start)
        return start < end and index < len(self._starts) and self._starts[index] < end

    def copy(self) -> "IntervalSet":
        """Return a set that grows apart from this one."""
        other = IntervalSet()
        other._starts, other._ends, other._size = self._starts[:], self._ends[:], self._size
        return other
