"""Reading the tables of a case; an error names file, key, value and what is allowed."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from prfaas.errors import ConfigError

_SHOWN = 60


class Rule(NamedTuple):
    """What a number must be, and how a person is told."""

    holds: Callable[[float], bool]
    text: str


POSITIVE = Rule(lambda value: value > 0, "a finite number above 0")
NOT_NEGATIVE = Rule(lambda value: value >= 0, "a finite number, 0 or more")
ANY = Rule(math.isfinite, "a finite number")
SHARE = Rule(lambda value: 0 < value <= 1, "a number above 0, up to 1")
QUANTILE = Rule(lambda value: 0 < value < 1, "a number between 0 and 1")


class Table:
    """One TOML table; `path` is where it stands in the file `source`."""

    def __init__(self, raw: Any, source: str, path: str, *, allowed: tuple[str, ...]) -> None:
        self._raw, self._source, self._path = raw, source, path
        if not isinstance(raw, dict):
            raise ConfigError(f"{source}: {path} = {_shown(raw)}: allowed: a table")
        for key in raw:
            if key not in allowed:
                raise ConfigError(
                    f"{source}: {self._at(key)}: unknown key; allowed: {', '.join(allowed)}"
                )

    def __contains__(self, key: str) -> bool:
        return key in self._raw

    def value(self, key: str) -> Any:
        """Return what a key that must be there holds."""
        if key not in self._raw:
            raise ConfigError(f"{self._source}: {self._at(key)}: missing")
        return self._raw[key]

    def text(self, key: str, default: str | None = None) -> str:
        """Return one line of text that is not empty."""
        value = self._raw.get(key, default) if default is not None else self.value(key)
        if not isinstance(value, str) or not value or not value.isprintable():
            self.refuse(key, "a line of text")
        return value

    def number(self, key: str, rule: Rule = POSITIVE, default: float | None = None) -> float:
        """Return a finite number that keeps the rule."""
        value = self._raw.get(key, default) if default is not None else self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, rule.text)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and rule.holds(number)):
            self.refuse(key, rule.text)
        return number

    def number_or_none(self, key: str, rule: Rule = POSITIVE) -> float | None:
        """Return a number, or None when the key is not there."""
        return self.number(key, rule) if key in self else None

    def whole(self, key: str, *, least: int, default: int | None = None) -> int:
        """Return a whole number."""
        value = self._raw.get(key, default) if default is not None else self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 30:
            self.refuse(key, f"a whole number, {least} or more")
        return value

    def whole_or_none(self, key: str, *, least: int) -> int | None:
        """Return a whole number, or None when the key is not there."""
        return self.whole(key, least=least) if key in self else None

    def table(self, key: str, *, allowed: tuple[str, ...]) -> "Table":
        """Return a table; one that is not there is empty."""
        return Table(self._raw.get(key, {}), self._source, self._at(key), allowed=allowed)

    def tables(self, key: str, *, allowed: tuple[str, ...]) -> list["Table"]:
        """Return an array of tables; none when the key is not there."""
        rows = self._raw.get(key, [])
        if not isinstance(rows, list):
            self.refuse(key, f"tables, each headed [[{key}]]")
        return [
            Table(row, self._source, f"{self._at(key)}[{index}]", allowed=allowed)
            for index, row in enumerate(rows)
        ]

    def prices(self, key: str, *, known: tuple[str, ...]) -> dict[str, float]:
        """Return a table of known keys with numbers that are not negative."""
        table = self.table(key, allowed=known)
        return {name: table.number(name, NOT_NEGATIVE) for name in known if name in table}

    def refuse(self, key: str, allowed: str) -> NoReturn:
        """Raise the error of a key whose value is not allowed."""
        shown = _shown(self._raw.get(key))
        raise ConfigError(f"{self._source}: {self._at(key)} = {shown}: allowed: {allowed}")

    def name(self, key: str) -> str:
        """Return the file and the key, as errors begin."""
        return f"{self._source}: {self._at(key)}"

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
