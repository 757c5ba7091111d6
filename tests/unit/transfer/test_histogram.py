"""What counts as a histogram that an engine tells."""

import math
from typing import Any

import pytest

from prfaas.transfer.histogram import MAX_BUCKETS, Histogram


def told(**changes: Any) -> dict[str, Any]:
    return {"bounds": [1, 2.5], "counts": [1, 0, 3], "sum": 12, **changes}


def test_what_is_told_is_read_back() -> None:
    histogram = Histogram.from_json(told())
    assert (histogram.bounds, histogram.counts, histogram.sum) == ((1.0, 2.5), [1, 0, 3], 12.0)
    assert Histogram.from_json(histogram.to_json()).to_json() == histogram.to_json()


@pytest.mark.parametrize(
    "changes",
    [
        {"bounds": [1, 10**400]},
        {"bounds": [2**53, 2**53 + 1]},
        {"bounds": [2, 1]},
        {"bounds": [1, math.nan]},
        {"bounds": [1, math.inf]},
        {"bounds": [1, True]},
        {"bounds": [1, []]},
        {"bounds": [1]},
        {"bounds": None},
        {"sum": 10**400},
        {"sum": -math.inf},
        {"sum": None},
        {"sum": "12"},
        {"counts": [1, 0, 10**400]},
        {"counts": [1, 0, -1]},
        {"counts": [1, 0, 1.5]},
        {"bounds": list(range(MAX_BUCKETS + 1)), "counts": [0] * (MAX_BUCKETS + 2)},
    ],
)
def test_anything_else_is_a_value_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a histogram"):
        Histogram.from_json(told(**changes))
