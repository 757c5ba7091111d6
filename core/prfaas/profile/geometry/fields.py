"""Reading a `config.json` of unknown quality: every wrong value is refused by its name."""

from collections.abc import Mapping, Sequence
from typing import Any

from prfaas.errors import ConfigError

MAX_COUNT = 1 << 24
"""Above every dimension, head count and window there is; a larger number is a mistake."""
MAX_LAYERS = 1 << 12


class Fields:
    """The values of a config, looked up in one mapping after another; null counts as absent.

    All readers raise ConfigError that names architecture, field, value and what is allowed.
    """

    def __init__(self, architecture: str, *scopes: tuple[str, Mapping[str, Any]]) -> None:
        self._architecture = architecture
        self._scopes = scopes

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Fields":
        """Return the same fields, with what stands in for absent ones."""
        return Fields(self._architecture, *self._scopes, ("", defaults))

    def has(self, name: str) -> bool:
        """Tell whether a field is there."""
        return self.value(name) is not None

    def value(self, name: str) -> Any:
        """Return a raw value, None if absent."""
        found = (scope[name] for _, scope in self._scopes if scope.get(name) is not None)
        return next(found, None)

    def nested(self, name: str) -> "Fields":
        """Return the fields of an object inside."""
        value = self.value(name)
        if not isinstance(value, Mapping):
            raise self.refuse(name, "an object")
        return Fields(self._architecture, (f"{self._label(name)}.", value))

    def count(self, *names: str, default: int | None = None, limit: int = MAX_COUNT) -> int:
        """Return the first of `names` that is there, a whole number from 1 to `limit`."""
        name = next((name for name in names if self.has(name)), names[0])
        value = self.value(name)
        if value is None and default is not None:
            return default
        if not _is_count(value, 1, limit):
            raise self.refuse(name, f"a whole number from 1 to {limit}")
        return int(value)

    def num_layers(self) -> int:
        """Return the number of layers."""
        return self.count("num_hidden_layers", limit=MAX_LAYERS)

    def flag(self, name: str) -> bool:
        """Return a field that is true or false; absent is false."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return bool(value)

    def numbers(self, name: str, *, low: int, high: int) -> list[int]:
        """Return a list of whole numbers from `low` to `high`."""
        value = self.value(name)
        if not isinstance(value, list) or not all(_is_count(item, low, high) for item in value):
            raise self.refuse(name, f"a list of whole numbers from {low} to {high}")
        return value

    def words(self, name: str, allowed: Mapping[str, Any]) -> list[str]:
        """Return a list of words, or the letters of a string, each a key of `allowed`."""
        value = self.value(name)
        if not isinstance(value, list | str) or not value:
            raise self.refuse(name, f"a list of {', '.join(allowed)}")
        for index, word in enumerate(value):
            if not isinstance(word, str) or word not in allowed:
                raise self._refusal(f"{self._label(name)}[{index}]", word, ", ".join(allowed))
        if len(value) > MAX_LAYERS:
            raise self.refuse(name, f"at most {MAX_LAYERS} layers")
        return list(value)

    def per_layer(self, name: str, values: Sequence[Any]) -> None:
        """Check that a list has an entry for every layer."""
        if len(values) != self.num_layers():
            label = self._label(name)
            raise ConfigError(
                f"{self._architecture}: {label} has {len(values)} entries,"
                f" num_hidden_layers is {self.num_layers()}; must be equal"
            )

    def refuse(self, name: str, allowed: str) -> ConfigError:
        """Return the error that says a field is not what it must be."""
        return self._refusal(self._label(name), self.value(name), allowed)

    def _refusal(self, label: str, value: Any, allowed: str) -> ConfigError:
        return ConfigError(f"{self._architecture}: {label} is {_shown(value)}; must be {allowed}")

    def _label(self, name: str) -> str:
        """Return a field's name with the path to it; an absent one belongs into the first scope."""
        holders = (prefix for prefix, scope in self._scopes if scope.get(name) is not None)
        return next(holders, self._scopes[0][0]) + name


def _shown(value: Any) -> str:
    """Return a value for an error line, short; Python does not print the very longest numbers."""
    if value is None:
        return "missing"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of over 60 digits"
    try:
        shown = repr(value)
    except ValueError:
        return "a list with a number of over 4,000 digits"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _is_count(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
