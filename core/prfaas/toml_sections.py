"""TOML text as frozen dataclasses: a class is the schema of a table, its field types of values.

Whatever is in the text, what comes out is a value of the class or one `ConfigError`.
"""

import tomllib
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from prfaas.errors import ConfigError

Section = TypeVar("Section")

#: What TOML promises of integers; Python's own have no end, and some cannot even be printed.
_INTEGERS = range(-(1 << 63), 1 << 63)


def read_sections(cls: type[Section], text: str, *, source: str) -> Section:
    """Return what a file says, a table for each field of `cls`; `source` names it in errors.

    Raises:
        ConfigError: naming source, key, value and what is allowed.
    """
    try:
        raw = _load(text, source)
        _check_integers(raw, where=source, path="")
        value: Section = _parse_section(cls, raw, where=source, path="")
    except RecursionError:
        raise ConfigError(f"{source}: tables or lists are nested too deep") from None
    return value


def _load(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    except ValueError:  # Python refuses to convert numbers of some thousand digits
        raise ConfigError(f"{source}: not valid TOML: an integer beyond 64 bits") from None


def _check_integers(raw: Any, *, where: str, path: str) -> None:
    if isinstance(raw, dict):
        for key, value in raw.items():
            _check_integers(value, where=where, path=_join(path, key))
    elif isinstance(raw, list):
        for value in raw:
            _check_integers(value, where=where, path=path)
    elif isinstance(raw, int) and raw not in _INTEGERS:
        raise ConfigError(f"{where}: {path}: an integer beyond 64 bits")


def _parse_section(cls: type[Any], raw: Any, *, where: str, path: str) -> Any:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: {path or 'file'}: expected a table, got {raw!r}")
    hints = get_type_hints(cls)
    names = [item.name for item in fields(cls)]
    for key in raw:
        if key not in names:
            raise ConfigError(
                f"{where}: {_join(path, key)}: unknown key; allowed: {', '.join(names)}"
            )
    values = {}
    for item in fields(cls):
        if item.name in raw:
            values[item.name] = _parse_value(
                hints[item.name], raw[item.name], where=where, path=_join(path, item.name)
            )
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"{where}: {_join(path, item.name)}: missing")
    return cls(**values)


def _parse_value(hint: Any, value: Any, *, where: str, path: str) -> Any:
    if get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if is_dataclass(hint):
        return _parse_section(typing.cast("type[Any]", hint), value, where=where, path=path)
    if get_origin(hint) is tuple and isinstance(value, list):
        element = get_args(hint)[0]
        return tuple(_parse_value(element, item, where=where, path=path) for item in value)
    if get_origin(hint) is dict and isinstance(value, dict):
        element = get_args(hint)[1]
        return {
            k: _parse_value(element, v, where=where, path=_join(path, k)) for k, v in value.items()
        }
    return _parse_scalar(hint, value, where=where, path=path)


def _parse_scalar(hint: Any, value: Any, *, where: str, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ConfigError(f"{where}: {path} = {value!r}: allowed: {', '.join(hint)}")
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if get_origin(hint) is None and type(value) is hint:
        return value
    name = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: {path} = {value!r}: expected {name}")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def render_sections(config: Any) -> str:
    """Return the TOML text that `read_sections` reads back to an equal value.

    Fields that are None have no table.
    """
    lines: list[str] = []
    for section in fields(config):
        value = getattr(config, section.name)
        if value is None:
            continue
        lines.append(f"[{section.name}]")
        lines.extend(
            f"{item.name} = {_render_value(getattr(value, item.name))}" for item in fields(value)
        )
        lines.append("")
    return "\n".join(lines)


def _render_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_render_value(item) for item in value) + "]"
    assert isinstance(value, dict)
    return "{ " + ", ".join(f"{_quote(k)} = {_render_value(v)}" for k, v in value.items()) + " }"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for char, code in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        escaped = escaped.replace(char, code)
    if any(ord(char) < 32 or ord(char) == 127 for char in escaped):
        raise ConfigError(f"control character in {text!r}")
    return f'"{escaped}"'
