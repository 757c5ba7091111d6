"""How far a packet's delay lies from the mean. Pure: chance comes in."""

from collections.abc import Callable
from enum import StrEnum
from statistics import NormalDist

_LARGEST = 4.0
_PARETO_SHAPE = 3.0


class Distribution(StrEnum):
    """Shapes of the spread of a link's delay, by the names that netem has for them."""

    UNIFORM = "uniform"
    NORMAL = "normal"
    PARETO = "pareto"
    PARETO_NORMAL = "paretonormal"


def spread(distribution: Distribution, chance: Callable[[], float]) -> float:
    """Return one deviation from the mean, in units of the jitter.

    Uniform: between -1 and 1. The others are close to netem's tables, whose mean is about 0 and
    which end at four jitters: a normal one's standard deviation is the jitter; most of a Pareto
    one is a little early and its tail very late. Source: the .dist files of iproute2 6.1.
    """
    if distribution is Distribution.UNIFORM:
        return 2 * chance() - 1
    if distribution is Distribution.NORMAL:
        return _normal(chance())
    if distribution is Distribution.PARETO:
        return _pareto(chance())
    return min(0.25 * _normal(chance()) + _pareto(chance()), _LARGEST)


def _normal(share: float) -> float:
    value = NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9))
    return min(max(value, -_LARGEST), _LARGEST)


def _pareto(share: float) -> float:
    mean = _PARETO_SHAPE / (_PARETO_SHAPE - 1)
    value: float = (1 - share) ** (-1 / _PARETO_SHAPE)
    return min((value - mean) * 4 / 3, _LARGEST)
