"""Counts of values by size, in buckets that are fixed from the start."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

MAX_BUCKETS = 64
_MOST_COUNTED = (1 << 63) - 1

#: Upper bounds in seconds for what a request waits for: those that vLLM has for its TTFT.
WAIT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0),
)
#: For what takes about a round trip.
ROUND_TRIP_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: From 64 KiB to 64 GiB, four times as much from one to the next.
SIZE_BYTES = tuple(float(1 << shift) for shift in range(16, 37, 2))


class Histogram:
    """How many values were at most each bound, and more than the bound before it.

    `counts` has one place more than `bounds`, for what is larger than all of them.

    >>> histogram = Histogram((1.0, 2.0))
    >>> for value in (0.5, 2.0, 9.0):
    ...     histogram.observe(value)
    >>> histogram.counts, histogram.sum
    ([1, 1, 1], 11.5)
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def to_json(self) -> dict[str, Any]:
        """Return a value of JSON types."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.sum}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Histogram":
        """Return what `to_json` gave. Raises: ValueError if it is none."""
        bounds, counts, total = raw.get("bounds"), raw.get("counts"), raw.get("sum")
        if not isinstance(bounds, list) or not isinstance(counts, list):
            raise ValueError("a histogram needs lists of bounds and counts")
        if len(bounds) > MAX_BUCKETS or len(counts) != len(bounds) + 1:
            raise ValueError(f"a histogram of {len(bounds)} bounds and {len(counts)} counts")
        upper = tuple(map(_number, bounds))
        if any(low >= high for low, high in pairwise(upper)):
            raise ValueError("a histogram's bounds must be rising numbers")
        if not all(type(count) is int and 0 <= count <= _MOST_COUNTED for count in counts):
            raise ValueError(f"a histogram's counts must be whole numbers up to {_MOST_COUNTED}")
        histogram = cls(upper)
        histogram.counts, histogram.sum = list(counts), _number(total)
        return histogram


def _number(value: object) -> float:
    """Return a finite number as a float: of two that differ by little, that may be the same."""
    if type(value) in (int, float):
        with suppress(OverflowError):
            number = float(value)  # type: ignore[arg-type]
            if math.isfinite(number):
                return number
    raise ValueError("a histogram's bounds and sum must be finite numbers")
