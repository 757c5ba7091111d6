"""Estimates from a stream, in bounded memory: lengths, means and rates, the old fading away.

Everything halves in weight each `half_life_s`. Time is given by the caller and may stand still; an
earlier time than the last counts as the last.
"""

import math

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError

Floats = NDArray[np.float64]

#: A cell is 2 % wide: that far off may a length be taken.
_CELLS_PER_OCTAVE = 32
_OCTAVES = 24
#: Cells whose share is smaller have faded away.
_FADED = 1e-9


class HistogramLengths:
    """A distribution over a few lengths, as `Lengths` has it."""

    def __init__(self, tokens: Floats, weights: Floats) -> None:
        """Take increasing lengths and their positive weights, of any sum.

        Raises:
            ConfigError: there are none.
        """
        if not len(tokens):
            raise ConfigError("lengths: empty; one length at least is needed")
        self._tokens = tokens
        self._weights = weights / weights.sum()
        self._above = _sums_from(self._weights)
        self._sums = _sums_from(self._weights * tokens)

    def above(self, t: Floats) -> Floats:
        """Return P(L > t)."""
        return np.asarray(self._above[np.searchsorted(self._tokens, t, side="right")])

    def sum_above(self, t: Floats) -> Floats:
        """Return E[L; L > t]."""
        return np.asarray(self._sums[np.searchsorted(self._tokens, t, side="right")])

    def cells(self) -> tuple[Floats, Floats]:
        """Return the lengths and their weights (sum 1)."""
        return self._tokens, self._weights

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths in whole tokens, 1 at least."""
        drawn = rng.choice(self._tokens, size=count, p=self._weights)
        return np.asarray(np.maximum(np.rint(drawn), 1), dtype=np.int64)


class LengthSketch:
    """The lengths of late, in a histogram of log-spaced cells.

    Each cell keeps the sum of its lengths, so that the mean is exact.

    >>> sketch = LengthSketch(half_life_s=60.0)
    >>> for tokens in (1000, 3000):
    ...     sketch.add(tokens, at_s=0.0)
    >>> sketch.lengths().cells()[0].tolist()
    [1000.0, 3000.0]
    """

    def __init__(self, *, half_life_s: float) -> None:
        self._half_life_s = _positive(half_life_s)
        self._counts = np.zeros(_CELLS_PER_OCTAVE * _OCTAVES)
        self._sums = np.zeros(_CELLS_PER_OCTAVE * _OCTAVES)
        self._last_s = -math.inf

    @property
    def weight(self) -> float:
        """Return how many requests are remembered, each for its weight, at the last time."""
        return float(self._counts.sum())

    def add(self, tokens: float, *, at_s: float) -> None:
        """Take one length; lengths below 1 count as 1."""
        kept = _kept(self._half_life_s, self._last_s, at_s)
        if kept < 1:
            self._counts *= kept
            self._sums *= kept
        self._last_s = max(self._last_s, at_s)
        cell = min(int(math.log2(max(tokens, 1.0)) * _CELLS_PER_OCTAVE), len(self._counts) - 1)
        self._counts[cell] += 1
        self._sums[cell] += max(tokens, 1.0)

    def lengths(self) -> HistogramLengths | None:
        """Return the distribution; None if nothing was seen."""
        some = self._counts > self._counts.sum() * _FADED
        if not some.any():
            return None
        counts = self._counts[some]
        return HistogramLengths(self._sums[some] / counts, counts)


class MeanSketch:
    """The mean of late of a stream of values.

    >>> mean = MeanSketch(half_life_s=60.0)
    >>> mean.add(10, at_s=0.0)
    >>> mean.add(40, at_s=60.0)
    >>> mean.mean()
    30.0
    """

    def __init__(self, *, half_life_s: float) -> None:
        self._half_life_s = _positive(half_life_s)
        self._count = self._sum = 0.0
        self._last_s = -math.inf

    def add(self, value: float, *, at_s: float) -> None:
        """Take one value."""
        kept = _kept(self._half_life_s, self._last_s, at_s)
        self._count = self._count * kept + 1
        self._sum = self._sum * kept + value
        self._last_s = max(self._last_s, at_s)

    def mean(self) -> float | None:
        """Return the mean; None if nothing was seen."""
        return self._sum / self._count if self._count else None


class RateSketch:
    """Events per second of late, right from the begin: what was before it is not taken for none.

    >>> rate = RateSketch(half_life_s=60.0, began_s=0.0)
    >>> for second in range(1, 31):
    ...     rate.add(at_s=float(second))
    >>> round(rate.per_s(at_s=30.0), 1)
    1.0
    """

    def __init__(self, *, half_life_s: float, began_s: float) -> None:
        self._half_life_s = _positive(half_life_s)
        self._count = 0.0
        self._began_s = self._last_s = began_s

    def add(self, *, at_s: float) -> None:
        """Take one event."""
        self._count = self._count * _kept(self._half_life_s, self._last_s, at_s) + 1
        self._last_s = max(self._last_s, at_s)

    def per_s(self, *, at_s: float) -> float:
        """Return the rate at a time, the last event's or later."""
        elapsed_s = max(at_s, self._last_s) - self._began_s
        if elapsed_s <= 0:
            return 0.0
        count = self._count * _kept(self._half_life_s, self._last_s, at_s)
        remembered_s = self._half_life_s / math.log(2)
        return count / (remembered_s * -math.expm1(-elapsed_s / remembered_s))


def _kept(half_life_s: float, last_s: float, at_s: float) -> float:
    """Return what is left of a weight of 1 after the time from last_s to at_s."""
    return math.exp2(-max(at_s - last_s, 0.0) / half_life_s)


def _positive(half_life_s: float) -> float:
    if not half_life_s > 0:
        raise ConfigError(f"half_life_s = {half_life_s}: allowed: above 0")
    return half_life_s


def _sums_from(values: Floats) -> Floats:
    """Return the sums of values[i:] for every i, and 0 for the end."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
