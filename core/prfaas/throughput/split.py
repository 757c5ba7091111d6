"""How a threshold parts the prompts, and what a prompt of either part costs in the mean."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.throughput.clusters import Expectation
from prfaas.throughput.equations import NO_TRAFFIC
from prfaas.workload.lengths import Lengths

Floats = NDArray[np.float64]

#: What a prompt costs over its length, as `Curve.over` does.
Cost = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Split:
    """The parts for every threshold; all arrays have the thresholds' shape, `(num_thresholds,)`.

    `offload_fraction` is p, `long_tokens` l_long and `short_tokens` l_short, each 0 where its part
    is empty. Made by `split_at`.
    """

    lengths: Lengths
    expectation: Expectation
    thresholds: Floats
    offload_fraction: Floats
    long_tokens: Floats
    short_tokens: Floats

    def long_mean(self, cost: Cost) -> Floats:
        """Return the mean cost of prompts above the threshold; 0 where there are none."""
        if self.expectation is Expectation.MEAN_LENGTH:
            return np.where(self.offload_fraction > 0, cost(self.long_tokens), 0.0)
        return _ratio(self._sum_above(cost), self.offload_fraction)

    def short_mean(self, cost: Cost) -> Floats:
        """Return the mean cost of prompts up to the threshold; 0 where there are none."""
        if self.expectation is Expectation.MEAN_LENGTH:
            return np.where(self.offload_fraction < 1, cost(self.short_tokens), 0.0)
        values, weights = self.lengths.cells()
        total = float(np.dot(cost(values), weights))
        return _ratio(total - self._sum_above(cost), 1 - self.offload_fraction)

    def _sum_above(self, cost: Cost) -> Floats:
        """Return E[cost(L); L > t].

        A cell's weight counts as at its representative length; where a threshold parts a cell, the
        difference to P(L > t) counts as at the threshold.
        """
        values, weights = self.lengths.cells()
        first = np.searchsorted(values, self.thresholds, side="right")
        mass = _sums_from(weights)[first]
        rest = self.offload_fraction - mass
        # A threshold of infinity has no rest, and no cost either.
        edge = cost(np.minimum(self.thresholds, values[-1]))
        return np.maximum(_sums_from(weights * cost(values))[first] + rest * edge, 0.0)


def split_at(lengths: Lengths, thresholds: Floats, expectation: Expectation) -> Split:
    """Return how each threshold parts the prompts; infinity offloads none."""
    above, sums = lengths.above(thresholds), lengths.sum_above(thresholds)
    above = np.where(above <= NO_TRAFFIC, 0.0, np.where(above >= 1 - NO_TRAFFIC, 1.0, above))
    mean = float(lengths.sum_above(np.array(0.0)))
    return Split(
        lengths=lengths,
        expectation=expectation,
        thresholds=thresholds,
        offload_fraction=above,
        long_tokens=_ratio(sums, above),
        short_tokens=_ratio(mean - sums, 1 - above),
    )


def _ratio(total: Floats, share: Floats) -> Floats:
    none = share <= 0
    return np.where(none, 0.0, total / np.where(none, 1.0, share))


def _sums_from(values: Floats) -> Floats:
    """Return the sums of values[i:] for every i, and 0 for the end."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
