"""Reading the fields of a profile document; an error names the file and the field."""

import math
from typing import Any, NoReturn

from prfaas.errors import ConfigError

_SHOWN = 60


class Reader:
    """The fields of one JSON object. `where` is the file, and the path inside it so far."""

    def __init__(self, raw: Any, where: str, *, allowed: frozenset[str]) -> None:
        if not isinstance(raw, dict):
            raise ConfigError(f"{where}: must be an object")
        for key in raw:
            if key not in allowed:
                raise ConfigError(f"{where}: {_shown(key)}: not a field; fields: {_names(allowed)}")
        self._raw = raw
        self._where = where

    def value(self, key: str) -> Any:
        """Return what a field that must be there holds."""
        if key not in self._raw:
            raise ConfigError(f"{self._where}: {key}: missing")
        return self._raw[key]

    def optional(self, key: str) -> Any:
        """Return what a field holds; None when it is not there."""
        return self._raw.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """Return one line of text; it may be empty only where there is a default."""
        value = self.value(key) if default is None else self._raw.get(key, default)
        if not isinstance(value, str) or not (value or default is not None):
            self.refuse(key, value, "must be text")
        if not value.isprintable():
            self.refuse(key, value, "must be one line of printable text")
        return value

    def whole(self, key: str, *, least: int, default: int | None = None) -> int:
        """Return a whole number."""
        value = self.value(key) if default is None else self._raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            self.refuse(key, value, f"must be a whole number, {least} at least")
        return value

    def seconds(self, key: str) -> float:
        """Return a duration above 0."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, value, "must be a number of seconds")
        if not 0 < value < 1e9:
            self.refuse(key, value, "must be above 0 seconds and finite")
        return float(value)

    def items(self, key: str) -> list[Any]:
        """Return a list; none when the field is not there."""
        value = self._raw.get(key, [])
        if not isinstance(value, list):
            self.refuse(key, value, "must be a list")
        return value

    def at(self, key: str) -> str:
        """Return the name of a field, for the reader of what it holds."""
        return f"{self._where}: {key}"

    def refuse(self, key: str, value: object, rule: str) -> NoReturn:
        """Raise the error of a value that breaks a rule."""
        raise ConfigError(f"{self._where}: {key}: {_shown(value)}: {rule}")


def finite(value: float) -> bool:
    """Return whether it is a number above 0 that arithmetic can go on with."""
    return math.isfinite(value) and value > 0


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "a number too large"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
