"""Functions of one variable that a profile is made of: times and sizes over tokens or batch."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError

Floats = NDArray[np.float64]


class Curve(Protocol):
    """A positive function of tokens (or batch size), for one value and for many."""

    def at(self, x: float) -> float:
        """Return the value at x; below 1, the value at 1."""

    def over(self, xs: Floats) -> Floats:
        """Return the values at all xs, of the same shape."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `curve_from_json` reads."""


class Scale(StrEnum):
    """How a table is read between its points."""

    LOG = "log"
    """Straight in log-log: each piece is a power law."""
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class TableCurve:
    """A curve through points, read between them by `scale`.

    Outside its points it goes on as its outermost piece does; a single point is a constant.

    >>> TableCurve(((1024, 0.44), (8192, 0.72)), Scale.LOG).at(1024)
    0.44
    >>> TableCurve(((10, 1.0), (20, 2.0)), Scale.LINEAR).at(30)
    3.0
    """

    points: tuple[tuple[float, float], ...]
    scale: Scale = Scale.LOG
    _xs: tuple[float, ...] = field(init=False, repr=False, compare=False)
    # Where each piece begins and its slope; what follows the last point is one too.
    _pieces: tuple[tuple[float, float, float], ...] = field(init=False, repr=False, compare=False)
    _columns: tuple[Floats, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError("points: a curve needs one point at least")
        for x, y in self.points:
            if not (math.isfinite(x) and x > 0 and math.isfinite(y) and y > 0):
                raise ConfigError(f"points: ({x}, {y}): both must be positive and finite")
        xs = [x for x, _ in self.points]
        if any(left * (1 + 1e-9) >= right for left, right in pairwise(xs)):
            raise ConfigError("points: x must increase from point to point")
        slope = _linear_slope if self.scale is Scale.LINEAR else _log_slope
        object.__setattr__(self, "_xs", tuple(xs))
        slopes = [slope(*two) for two in pairwise(self.points)] or [0.0]
        rises = (*slopes, slopes[-1])[: len(xs)]
        pieces = [(*point, rise) for point, rise in zip(self.points, rises, strict=True)]
        object.__setattr__(self, "_pieces", tuple(pieces))
        object.__setattr__(self, "_columns", tuple(np.array(pieces, dtype=np.float64).T))

    def at(self, x: float) -> float:
        """Return the value at x; below 1, the value at 1."""
        if x < 1:
            x = 1.0
        x0, y0, slope = self._pieces[max(bisect_right(self._xs, x) - 1, 0)]
        if x == x0:
            return y0
        if self.scale is Scale.LINEAR:
            return max(y0 + (x - x0) * slope, 0.0)
        try:
            return float(y0 * (x / x0) ** slope)
        except OverflowError:
            return math.inf

    def over(self, xs: Floats) -> Floats:
        """Return the values at all xs, of the same shape."""
        xs = np.maximum(xs, 1.0)
        piece = np.searchsorted(self._columns[0][1:], xs, side="right")
        x0, y0, slope = (column[piece] for column in self._columns)
        if self.scale is Scale.LINEAR:
            return np.asarray(np.maximum(y0 + slope * (xs - x0), 0.0))
        with np.errstate(over="ignore"):
            return np.asarray(y0 * (xs / x0) ** slope)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `curve_from_json` reads."""
        return {"points": [list(point) for point in self.points], "scale": str(self.scale)}


@dataclass(frozen=True, slots=True)
class PolynomialCurve:
    """A polynomial, constant term first; 0 where it would be negative.

    >>> PolynomialCurve((1.0, 0.5)).at(4)
    3.0
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.coefficients or not all(map(math.isfinite, self.coefficients)):
            raise ConfigError("coefficients: finite numbers are needed, one at least")

    def at(self, x: float) -> float:
        """Return the value at x; below 1, the value at 1."""
        x = max(x, 1.0)
        value = 0.0
        for coefficient in reversed(self.coefficients):
            value = value * x + coefficient
        return max(value, 0.0)

    def over(self, xs: Floats) -> Floats:
        """Return the values at all xs, of the same shape."""
        values = np.polynomial.polynomial.polyval(np.maximum(xs, 1.0), list(self.coefficients))
        return np.asarray(np.maximum(values, 0.0))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `curve_from_json` reads."""
        return {"coefficients": list(self.coefficients)}


def _linear_slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


def _log_slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    rise = math.log(right[1]) - math.log(left[1])
    return rise / (math.log(right[0]) - math.log(left[0]))


def constant(value: float) -> Curve:
    """Return the curve that has the value everywhere.

    >>> constant(0.025).at(20)
    0.025
    """
    return TableCurve(((1.0, value),), Scale.LINEAR)


def curve_from_json(raw: Any) -> Curve:
    """Read a curve from plain JSON values: `{points, scale}` or `{coefficients}`.

    Raises:
        ConfigError: neither form, or a value is not a number.
    """
    if not isinstance(raw, dict):
        raise ConfigError("a curve is an object with points, or with coefficients")
    try:
        if "coefficients" in raw:
            return PolynomialCurve(tuple(map(_number, raw["coefficients"])))
        points = tuple((_number(x), _number(y)) for x, y in raw["points"])
        return TableCurve(points, Scale(raw.get("scale", Scale.LOG)))
    except KeyError:
        raise ConfigError("a curve is an object with points, or with coefficients") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"a curve's points are pairs of numbers: {error}") from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def table(points: Sequence[tuple[float, float]], scale: Scale = Scale.LOG) -> TableCurve:
    """Return a curve through the points.

    >>> table([(1, 2.0), (4, 4.0)]).at(2)
    2.8284271247461903
    """
    return TableCurve(tuple((float(x), float(y)) for x, y in points), scale)
