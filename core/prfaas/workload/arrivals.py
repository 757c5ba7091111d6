"""When requests arrive: seeded processes that give the times of the first so many arrivals."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError

Floats = NDArray[np.float64]

_LOWEST_RATE, _HIGHEST_RATE = 1e-9, 1e9
_LOWEST_CV, _HIGHEST_CV = 1e-6, 100.0
_FEWEST_PER_CYCLE = 0.5
_SHORTEST_PERIOD_S = 0.001
_LONGEST_CYCLE_S = 1e12


class Arrivals(Protocol):
    """A process of arrivals; the same generator state gives the same times."""

    def times(self, rng: np.random.Generator, count: int) -> Floats:
        """Return the seconds of the first `count` arrivals, in order.

        Raises:
            ConfigError: count is negative.
        """


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals at a constant rate.

    >>> len(Poisson(2.0).times(np.random.default_rng(1), 3))
    3
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)

    def times(self, rng: np.random.Generator, count: int) -> Floats:
        """Return the seconds of the first `count` arrivals, in order."""
        return _poisson(rng, self.rate_per_s, count)


@dataclass(frozen=True, slots=True)
class Deterministic:
    """Evenly spaced arrivals, the first after one gap.

    >>> Deterministic(4.0).times(np.random.default_rng(1), 3)
    array([0.25, 0.5 , 0.75])
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)

    def times(self, rng: np.random.Generator, count: int) -> Floats:  # noqa: ARG002
        """Return the seconds of the first `count` arrivals, in order; nothing is drawn."""
        return np.arange(1, _counted(count) + 1, dtype=np.float64) / self.rate_per_s


@dataclass(frozen=True, slots=True)
class GammaBursts:
    """Independent gamma gaps of coefficient of variation `cv`: 1 is Poisson, above 1 bursty."""

    rate_per_s: float
    cv: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        if not _LOWEST_CV <= self.cv <= _HIGHEST_CV:
            raise ConfigError(f"cv: {self.cv}: must be from {_LOWEST_CV:g} to {_HIGHEST_CV:g}")

    def times(self, rng: np.random.Generator, count: int) -> Floats:
        """Return the seconds of the first `count` arrivals, in order."""
        variance = self.cv**2
        gaps = rng.gamma(1 / variance, variance / self.rate_per_s, _counted(count))
        return np.asarray(np.cumsum(gaps))


@dataclass(frozen=True, slots=True)
class OnOff:
    """Poisson arrivals whose rate switches between two levels (Markov-modulated).

    Phases are exponential with means on_s and off_s. In an on phase the rate is burst_factor times
    rate_per_s, in an off phase what is left, so that rate_per_s is the long-run mean.
    """

    rate_per_s: float
    on_s: float
    off_s: float
    burst_factor: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        _check_positive("on_s", self.on_s)
        _check_positive("off_s", self.off_s)
        cycle_s = self.on_s + self.off_s
        if not cycle_s <= _LONGEST_CYCLE_S:
            raise ConfigError(f"on_s, off_s: {cycle_s:g} s: at most {_LONGEST_CYCLE_S:g} together")
        most = cycle_s / self.on_s
        if not 1 <= self.burst_factor <= most * (1 + 1e-9):
            raise ConfigError(
                f"burst_factor: {self.burst_factor}: must be from 1 to (on_s + off_s) / on_s"
                f" = {most:.4g}, or the mean rate cannot hold"
            )
        if not cycle_s * self.rate_per_s >= _FEWEST_PER_CYCLE:
            raise ConfigError(
                f"on_s, off_s: {cycle_s:g} s together see {cycle_s * self.rate_per_s:.2g} requests;"
                f" {_FEWEST_PER_CYCLE} at least are needed"
            )

    def times(self, rng: np.random.Generator, count: int) -> Floats:
        """Return the seconds of the first `count` arrivals, in order."""
        wanted = np.cumsum(rng.exponential(1.0, _counted(count)))
        if not count:
            return wanted
        durations, rates = self._phases(rng, float(wanted[-1]))
        ends = np.concatenate([[0.0], np.cumsum(durations)])
        expected = np.concatenate([[0.0], np.cumsum(durations * rates)])
        # A unit-rate process, its time stretched so that each phase holds what it should.
        return np.asarray(np.interp(wanted, expected, ends))

    def _phases(self, rng: np.random.Generator, arrivals: float) -> tuple[Floats, Floats]:
        """Return durations and rates of phases that together expect `arrivals` at least."""
        cycle_s = self.on_s + self.off_s
        low = max(0.0, self.rate_per_s * (cycle_s - self.burst_factor * self.on_s) / self.off_s)
        means, levels = [self.on_s, self.off_s], [self.burst_factor * self.rate_per_s, low]
        if rng.random() < self.off_s / cycle_s:
            means.reverse()
            levels.reverse()
        durations = np.empty((0, 2))
        while float((durations @ levels).sum()) <= arrivals:
            missing = arrivals - float((durations @ levels).sum())
            cycles = int(missing / (self.rate_per_s * cycle_s) * 1.1) + 16
            durations = np.concatenate([durations, rng.exponential(means, (cycles, 2))])
        return durations.ravel(), np.tile(levels, len(durations))


@dataclass(frozen=True, slots=True)
class Diurnal:
    """Poisson arrivals whose rate swings: rate_per_s * (1 + amplitude * sin(2 pi t / period_s))."""

    rate_per_s: float
    period_s: float
    amplitude: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_per_s)
        if not _SHORTEST_PERIOD_S <= self.period_s < math.inf:
            raise ConfigError(
                f"period_s: {self.period_s}: must be {_SHORTEST_PERIOD_S} or more, and finite"
            )
        if not 0 <= self.amplitude <= 1:
            raise ConfigError(f"amplitude: {self.amplitude}: must be from 0 to 1")

    def times(self, rng: np.random.Generator, count: int) -> Floats:
        """Return the seconds of the first `count` arrivals, in order; drawn by thinning."""
        highest = self.rate_per_s * (1 + self.amplitude)
        kept, now_s = np.empty(0), 0.0
        while len(kept) < _counted(count):
            size = int((count - len(kept)) * (1 + self.amplitude) * 1.05) + 16
            tried = now_s + _poisson(rng, highest, size)
            now_s = float(tried[-1])
            stays = rng.random(size) * highest < self._rate(tried)
            kept = np.concatenate([kept, tried[stays]])
        return kept[:count]

    def _rate(self, times_s: Floats) -> Floats:
        swing = self.amplitude * np.sin(times_s * (2 * math.pi / self.period_s))
        return np.asarray(self.rate_per_s * (1 + swing))


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Recorded arrivals, `speed` times as fast, from 0 on; past their end they begin again.

    >>> Replay(np.array([5.0, 6.0, 8.0]), speed=2.0).times(np.random.default_rng(1), 4)
    array([0.  , 0.5 , 1.5 , 2.25])
    """

    recorded_s: Floats
    speed: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("speed", self.speed)
        if self.recorded_s.ndim != 1 or not len(self.recorded_s):
            raise ConfigError("recorded_s: empty; one arrival at least is needed")
        if not np.all(np.isfinite(self.recorded_s)) or np.any(np.diff(self.recorded_s) < 0):
            raise ConfigError("recorded_s: must be finite and must not decrease")

    def times(self, rng: np.random.Generator, count: int) -> Floats:  # noqa: ARG002
        """Return the seconds of the first `count` arrivals, in order; nothing is drawn."""
        recorded = (self.recorded_s - self.recorded_s[0]) / self.speed
        if _counted(count) <= len(recorded):
            return np.asarray(recorded[:count])
        if recorded[-1] <= 0:
            raise ConfigError("recorded_s: spans no time, so it cannot be repeated")
        # One mean gap lies between the last arrival of a lap and the first of the next.
        lap_s = recorded[-1] * len(recorded) / (len(recorded) - 1)
        lap, index = np.divmod(np.arange(count), len(recorded))
        return np.asarray(lap * lap_s + recorded[index])


def _poisson(rng: np.random.Generator, rate_per_s: float, count: int) -> Floats:
    return np.asarray(np.cumsum(rng.exponential(1 / rate_per_s, _counted(count))))


def _counted(count: int) -> int:
    if count < 0:
        raise ConfigError(f"count: {count}: must not be negative")
    return count


def _check_rate(rate_per_s: float) -> None:
    if not _LOWEST_RATE <= rate_per_s <= _HIGHEST_RATE:
        raise ConfigError(
            f"rate_per_s: {rate_per_s}: must be from {_LOWEST_RATE:g} to {_HIGHEST_RATE:g}"
        )


def _check_positive(field: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{field}: {value}: must be positive and finite")
