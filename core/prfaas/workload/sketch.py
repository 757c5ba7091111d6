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
_LAST_CELL = _CELLS_PER_OCTAVE * _OCTAVES - 1
_MOST_HALVINGS = 64
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
        self._fade = _Fade(half_life_s)
        self._counts = [0.0] * (_LAST_CELL + 1)
        self._sums = [0.0] * (_LAST_CELL + 1)

    @property
    def weight(self) -> float:
        """Return how many requests are remembered, each for its weight, at the last time."""
        return sum(self._counts) / self._fade.weight

    def per_s(self, *, since_s: float, at_s: float) -> float:
        """Return the rate at a time, the last one's or later, of what is counted since a time.

        It is right from the begin: what was before it is not taken for none.
        """
        fade = self._fade
        elapsed_s = max(at_s, fade.last_s) - since_s
        if elapsed_s <= 0:
            return 0.0
        count = sum(self._counts) * fade.kept_until(at_s)
        remembered_s = fade.half_life_s / math.log(2)
        return count / (remembered_s * -math.expm1(-elapsed_s / remembered_s))

    def add(self, tokens: float, *, at_s: float) -> None:
        """Take one length; lengths below 1 count as 1."""
        fade = self._fade
        if at_s > fade.last_s:
            kept = fade.advance(at_s)
            if kept < 1:
                self._counts = [count * kept for count in self._counts]
                self._sums = [total * kept for total in self._sums]
        weight = fade.weight
        tokens = tokens if tokens > 1 else 1.0
        cell = int(math.log2(tokens) * _CELLS_PER_OCTAVE)
        if cell > _LAST_CELL:
            cell = _LAST_CELL
        self._counts[cell] += weight
        self._sums[cell] += tokens * weight

    def lengths(self) -> HistogramLengths | None:
        """Return the distribution; None if nothing was seen."""
        counts = np.array(self._counts)
        some = counts > counts.sum() * _FADED
        if not some.any():
            return None
        counts = counts[some]
        return HistogramLengths(np.array(self._sums)[some] / counts, counts)


class MeanSketch:
    """The mean of late of a stream of values.

    >>> mean = MeanSketch(half_life_s=60.0)
    >>> mean.add(10, at_s=0.0)
    >>> mean.add(40, at_s=60.0)
    >>> mean.mean()
    30.0
    """

    def __init__(self, *, half_life_s: float) -> None:
        self._fade = _Fade(half_life_s)
        self._count = self._sum = 0.0

    def add(self, value: float, *, at_s: float) -> None:
        """Take one value."""
        kept = self._fade.advance(at_s)
        self._count = self._count * kept + self._fade.weight
        self._sum = self._sum * kept + value * self._fade.weight

    def mean(self) -> float | None:
        """Return the mean; None if nothing was seen."""
        return self._sum / self._count if self._count else None


class _Fade:
    """What something new weighs: twice as much each half-life, so that the old need not be touched.

    Once that is `_MOST_HALVINGS` halvings, all is scaled down and begins again from 1.

    Source: Cormode et al., Forward Decay: A Practical Time Decay Model for Streaming Systems, 2009.
    """

    def __init__(self, half_life_s: float) -> None:
        """Take the half-life.

        Raises:
            ConfigError: it is not above 0.
        """
        if not half_life_s > 0:
            raise ConfigError(f"half_life_s = {half_life_s}: allowed: above 0")
        self.half_life_s = half_life_s
        self.last_s = self._base_s = -math.inf
        self.weight = 1.0

    def advance(self, at_s: float) -> float:
        """Go on to a time; return the factor for all that was added up so far, mostly 1."""
        if at_s <= self.last_s:
            return 1.0
        self.last_s = at_s
        if self._base_s == -math.inf:  # the first time of all
            self._base_s = at_s
        halvings = (at_s - self._base_s) / self.half_life_s
        if halvings <= _MOST_HALVINGS:
            self.weight = math.exp2(halvings)
            return 1.0
        self._base_s, self.weight = at_s, 1.0
        return math.exp2(-halvings)

    def kept_until(self, at_s: float) -> float:
        """Return the factor from sums to what counts at a time, the last one or later."""
        return math.exp2(-max(at_s - self.last_s, 0.0) / self.half_life_s) / self.weight


def _sums_from(values: Floats) -> Floats:
    """Return the sums of values[i:] for every i, and 0 for the end."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
