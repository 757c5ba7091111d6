"""Counting over time: how many intervals are open in each bin, for millions of them at once."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def open_seconds(
    begin_s: Floats, end_s: Floats, edges_s: Floats, rate: Floats | None = None
) -> Floats:
    """Return per bin the seconds that intervals were open in it, summed over the intervals.

    `edges_s` are the bins' edges, one more than there are bins. With `rate` each interval counts so
    many times: bytes per second give the bytes of each bin. No interval may end before it begins.

    >>> open_seconds(np.array([1.0, 2.0]), np.array([3.0, 6.0]), np.array([0.0, 2.0, 4.0]))
    array([1., 3.])
    """
    return np.diff(_since(begin_s, edges_s, rate) - _since(end_s, edges_s, rate))


def _since(at_s: Floats, edges_s: Floats, rate: Floats | None) -> Floats:
    """Return for each edge the seconds that have passed since those points that lie before it."""
    order = np.argsort(at_s)
    at_s = at_s[order]
    weight = np.ones(len(at_s)) if rate is None else rate[order]
    before = np.searchsorted(at_s, edges_s)
    weights = np.concatenate([[0.0], np.cumsum(weight)])[before]
    return np.asarray(weights * edges_s - np.concatenate([[0.0], np.cumsum(weight * at_s)])[before])


def quantiles_in_bins(at_s: Floats, values: Floats, edges_s: Floats, quantile: float) -> Floats:
    """Return per bin the quantile of the values whose points lie in it, NaN where there are none.

    `at_s` must not decrease. The last bin holds its right edge.
    """
    bounds = np.searchsorted(at_s, edges_s)
    bounds[-1] = np.searchsorted(at_s, edges_s[-1], side="right")
    parts = [values[low:high] for low, high in pairwise(bounds)]
    return np.array([np.quantile(part, quantile) if len(part) else np.nan for part in parts])
