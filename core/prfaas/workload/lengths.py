"""Distributions of prompt length: what the planner integrates over and the simulator draws from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.profile.curve import Curve

Floats = NDArray[np.float64]

_QUADRATURE_CELLS = 2048

_WIDEST_SIGMAS = 8.0
"""Beyond so many sigmas there is less than 1e-14 of a log-normal."""

_LONGEST = 1e12
_LOWEST_SIGMA, _HIGHEST_SIGMA = 1e-6, 10.0
_LEAST_MASS = 1e-3
"""Share of the untruncated distribution within its bounds; with less, drawing would take long."""


class Lengths(Protocol):
    """A distribution of lengths in tokens.

    For a threshold t, `above(t)` is P(L > t), `sum_above(t)` is E[L; L > t], so that
    E[L | L > t] = sum_above(t) / above(t). Both take arrays.
    """

    def above(self, t: Floats) -> Floats:
        """Return P(L > t)."""

    def sum_above(self, t: Floats) -> Floats:
        """Return E[L; L > t]."""

    def cells(self) -> tuple[Floats, Floats]:
        """Return representative lengths, increasing, and their weights (sum 1), for quadrature."""

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths in whole tokens, 1 at least."""


@dataclass(frozen=True, slots=True)
class TruncatedLogNormal:
    """exp(N(mu, sigma)) within [low, high] tokens.

    The paper's workload has mean 27.5K and half of it above 19.4K:

    >>> paper = TruncatedLogNormal(9.90, 1.00, 128, 131072)
    >>> round(mean_of(paper)), round(float(paper.above(np.array(19400.0))), 4)
    (27486, 0.4957)

    Source: PrfaaS §4.1.
    """

    mu: float
    sigma: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for field in ("mu", "sigma", "low", "high"):
            if not math.isfinite(getattr(self, field)):
                raise ConfigError(f"{field}: {getattr(self, field)}: must be finite")
        if not _LOWEST_SIGMA <= self.sigma <= _HIGHEST_SIGMA:
            raise ConfigError(
                f"sigma: {self.sigma}: must be from {_LOWEST_SIGMA:g} to {_HIGHEST_SIGMA:g}"
            )
        if not 1 <= self.low < self.high <= _LONGEST:
            raise ConfigError(
                f"low, high: [{self.low}, {self.high}]: need 1 <= low < high <= {_LONGEST:g}"
            )
        if self._mass() < _LEAST_MASS:
            raise ConfigError(f"low, high: no length is likely within [{self.low}, {self.high}]")

    def above(self, t: Floats) -> Floats:
        """Return P(L > t)."""
        z = (np.log(np.clip(t, self.low, self.high)) - self.mu) / self.sigma
        top = (math.log(self.high) - self.mu) / self.sigma
        return np.asarray(_normal_between(z, top) / self._mass())

    def sum_above(self, t: Floats) -> Floats:
        """Return E[L; L > t]."""
        shift = self.mu + self.sigma**2
        z = (np.log(np.clip(t, self.low, self.high)) - shift) / self.sigma
        top = (math.log(self.high) - shift) / self.sigma
        scale = math.exp(self.mu + self.sigma**2 / 2)
        return np.asarray(scale * _normal_between(z, top) / self._mass())

    def cells(self) -> tuple[Floats, Floats]:
        """Return representative lengths, increasing, and their weights (sum 1), for quadrature."""
        return _log_normal_cells(self)

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths in whole tokens, 1 at least."""
        drawn = np.empty(0)
        while len(drawn) < count:
            size = int((count - len(drawn)) / max(self._mass(), 0.05)) + 16  # bounds the memory
            fresh = np.exp(rng.normal(self.mu, self.sigma, size))
            drawn = np.concatenate([drawn, fresh[(fresh >= self.low) & (fresh <= self.high)]])
        return _whole(drawn[:count])

    def _mass(self) -> float:
        low = (math.log(self.low) - self.mu) / self.sigma
        high = (math.log(self.high) - self.mu) / self.sigma
        return float(_normal_between(low, high))


@lru_cache(maxsize=64)
def _log_normal_cells(lengths: TruncatedLogNormal) -> tuple[Floats, Floats]:
    low = max(math.log(lengths.low), lengths.mu - _WIDEST_SIGMAS * lengths.sigma)
    high = min(math.log(lengths.high), lengths.mu + _WIDEST_SIGMAS * lengths.sigma)
    logs = np.linspace(low, high, _QUADRATURE_CELLS + 1)
    z, edges = (logs - lengths.mu) / lengths.sigma, np.exp(logs)
    weights = _normal_between(z[:-1], z[1:])
    scale = math.exp(lengths.mu + lengths.sigma**2 / 2)
    totals = scale * _normal_between(z[:-1] - lengths.sigma, z[1:] - lengths.sigma)
    values = np.clip(totals / weights, edges[:-1], edges[1:])
    return values, weights / weights.sum()


class EmpiricalLengths:
    """The lengths that were seen, each as likely as it was frequent.

    >>> seen = EmpiricalLengths([10, 10, 40])
    >>> mean_of(seen), float(seen.above(np.array(10.0)))
    (20.0, 0.3333333333333333)
    """

    def __init__(self, tokens: Sequence[int] | NDArray[np.int64]) -> None:
        """Take lengths in tokens, in any order.

        Raises:
            ConfigError: there are none, or one is negative or not finite.
        """
        values = np.asarray(tokens, dtype=np.float64)
        if values.ndim != 1 or not len(values):
            raise ConfigError("lengths: empty; one length at least is needed")
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            raise ConfigError("lengths: every length must be finite and not negative")
        self._values = np.sort(values)
        self._sums = np.concatenate([[0.0], np.cumsum(self._values)])

    def above(self, t: Floats) -> Floats:
        """Return P(L > t)."""
        first = np.searchsorted(self._values, t, side="right")
        return np.asarray((len(self._values) - first) / len(self._values))

    def sum_above(self, t: Floats) -> Floats:
        """Return E[L; L > t]."""
        first = np.searchsorted(self._values, t, side="right")
        return np.asarray((self._sums[-1] - self._sums[first]) / len(self._values))

    def cells(self) -> tuple[Floats, Floats]:
        """Return representative lengths, increasing, and their weights (sum 1), for quadrature."""
        lengths, counts = np.unique(self._values, return_counts=True)
        return lengths, counts / counts.sum()

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths in whole tokens, 1 at least."""
        drawn = rng.choice(self._values, size=count)
        return _whole(drawn)


def mean_of(lengths: Lengths) -> float:
    """Return E[L]."""
    return float(lengths.sum_above(np.array(0.0)))


def mean_above(lengths: Lengths, t: float) -> float:
    """Return l_long = E[L | L > t]; 0 where nothing is above t."""
    share = float(lengths.above(np.array(t)))
    return float(lengths.sum_above(np.array(t))) / share if share > 0 else 0.0


def mean_below(lengths: Lengths, t: float) -> float:
    """Return l_short = E[L | L <= t]; 0 where nothing is below t."""
    share = 1 - float(lengths.above(np.array(t)))
    rest = mean_of(lengths) - float(lengths.sum_above(np.array(t)))
    return rest / share if share > 0 else 0.0


def quantile(lengths: Lengths, q: float) -> float:
    """Return the length that a share q of all does not exceed."""
    values, weights = lengths.cells()
    index = int(np.searchsorted(np.cumsum(weights), q * (1 - 1e-12)))
    return float(values[min(index, len(values) - 1)])


def expect(lengths: Lengths, curve: Curve) -> float:
    """Return E[curve(L)]."""
    values, weights = lengths.cells()
    return float(np.dot(curve.over(values), weights))


def _normal_between(z: Floats | float, top: Floats | float) -> Floats:
    """Return P(z < N(0, 1) <= top), from the nearer tail, so that little cancels."""
    z, top = np.asarray(z) / math.sqrt(2), np.asarray(top) / math.sqrt(2)
    return np.asarray(0.5 * np.where(z > 0, _erfc(z) - _erfc(top), _erfc(-top) - _erfc(-z)))


def _whole(tokens: Floats) -> NDArray[np.int64]:
    return np.asarray(np.maximum(np.rint(tokens), 1), dtype=np.int64)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])
