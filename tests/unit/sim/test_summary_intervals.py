"""Open intervals per bin, against the same sum done one by one."""

from itertools import pairwise

import numpy as np
import pytest

from prfaas.sim.intervals import open_seconds, quantiles_in_bins

EDGES = np.array([0.0, 1.0, 2.5, 7.0])


def one_by_one(begin: np.ndarray, end: np.ndarray, rate: np.ndarray) -> list[float]:
    bins = pairwise(EDGES)
    return [
        sum(
            r * max(0.0, min(e, high) - max(b, low))
            for b, e, r in zip(begin, end, rate, strict=True)
        )
        for low, high in bins
    ]


@pytest.mark.parametrize("seed", range(5))
def test_each_bin_holds_what_overlaps_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begin = rng.uniform(-1, 8, 50)
    end = begin + rng.exponential(2.0, 50)
    rate = rng.uniform(0, 3, 50)
    assert open_seconds(begin, end, EDGES, rate) == pytest.approx(one_by_one(begin, end, rate))
    ones = np.ones(50)
    assert open_seconds(begin, end, EDGES) == pytest.approx(one_by_one(begin, end, ones))


def test_intervals_that_meet_an_edge_or_are_empty() -> None:
    begin, end = np.array([0.0, 1.0, 2.5, 7.0]), np.array([1.0, 1.0, 7.0, 9.0])
    assert open_seconds(begin, end, EDGES).tolist() == [1.0, 0.0, 4.5]
    assert open_seconds(np.empty(0), np.empty(0), EDGES).tolist() == [0.0, 0.0, 0.0]


def test_quantiles_are_of_the_bin_alone() -> None:
    at = np.array([0.0, 0.5, 1.0, 6.0, 7.0])
    values = np.array([1.0, 3.0, 10.0, 20.0, 40.0])
    found = quantiles_in_bins(at, values, EDGES, 0.5)
    assert found.tolist() == [2.0, 10.0, 30.0]
    assert np.isnan(quantiles_in_bins(at[:2], values[:2], EDGES, 0.5)[1:]).all()
