"""Text to numbers at the edge: rates, durations and ratios. The only converter of options."""

import re
from typing import NamedTuple

from prfaas.errors import ConfigError

_NUMBER_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]*)\s*")
_RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Bounds(NamedTuple):
    """Closed interval of allowed values, in base units, and how a person writes it."""

    low: float
    high: float
    text: str

    def check(self, value: float, *, option: str, shown: object) -> None:
        """Raise ConfigError when `value` is outside (NaN included)."""
        if not self.low <= value <= self.high:
            raise ConfigError(f"{option}: {shown!r} is out of range; allowed: {self.text}")


RATE = Bounds(1e3, 1e12, "1kbit to 1tbit")
DELAY = Bounds(0.0, 10.0, "0ms to 10s")
ROUND_TRIP = Bounds(0.0, 20.0, "0ms to 20s")
JITTER = Bounds(0.0, 10.0, "0ms to 10s, and not more than the delay")
LOSS = Bounds(0.0, 1.0, "0% to 100%")


def parse_rate(text: str, *, option: str = "rate") -> int:
    """Return bits per second.

    Raises: ConfigError naming `option` and what is allowed.

    >>> parse_rate("10gbit")
    10000000000
    """
    number, unit = _split(text, option, "a number and bit, kbit, mbit, gbit or tbit, as in 10gbit")
    if unit not in _RATE_UNITS:
        raise ConfigError(
            f"{option}: {text!r} has no known unit; allowed: a number and"
            " bit, kbit, mbit, gbit or tbit, as in 10gbit"
        )
    value = number * _RATE_UNITS[unit]
    RATE.check(value, option=option, shown=text)
    return round(value)


def parse_duration(text: str, *, option: str, bounds: Bounds = DELAY) -> float:
    """Return seconds.

    Raises: ConfigError naming `option` and what is allowed.

    >>> parse_duration("20ms", option="rtt")
    0.02
    """
    number, unit = _split(text, option, "a number and us, ms or s, as in 20ms")
    if unit not in _TIME_UNITS:
        raise ConfigError(
            f"{option}: {text!r} has no known unit; allowed: a number and us, ms or s, as in 20ms"
        )
    value = round(number * _TIME_UNITS[unit], 9)
    bounds.check(value, option=option, shown=text)
    return value


def parse_ratio(text: str, *, option: str = "loss") -> float:
    """Return a share from 0 to 1; `2%` and `0.02` are the same.

    Raises: ConfigError naming `option` and what is allowed.

    >>> parse_ratio("2%")
    0.02
    """
    allowed = "a percentage as in 2%, or a share from 0 to 1 as in 0.02"
    number, unit = _split(text, option, allowed)
    if unit not in ("", "%"):
        raise ConfigError(f"{option}: {text!r} has no known unit; allowed: {allowed}")
    value = round(number / 100, 12) if unit == "%" else number
    LOSS.check(value, option=option, shown=text)
    return value


def format_rate(bits_per_s: float) -> str:
    """Return a short text for people; `parse_rate` reads it back, rounded to 4 digits.

    >>> format_rate(100e9)
    '100gbit'
    """
    for unit, scale in reversed(_RATE_UNITS.items()):
        if bits_per_s >= scale:
            return f"{bits_per_s / scale:.4g}{unit}"
    return f"{bits_per_s:.4g}bit"


def format_duration(seconds: float) -> str:
    """Return milliseconds for people.

    >>> format_duration(0.02)
    '20ms'
    """
    return f"{seconds * 1e3:.4g}ms"


def _split(text: str, option: str, allowed: str) -> tuple[float, str]:
    match = _NUMBER_UNIT.fullmatch(text)
    if match is None:
        raise ConfigError(f"{option}: {text!r} is not a quantity; allowed: {allowed}")
    return float(match[1]), match[2].lower()
