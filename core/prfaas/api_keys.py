"""API keys of a gateway's clients: the keys file, which holds digests and never a key."""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from prfaas.errors import ConfigError
from prfaas.names import check_name, is_name
from prfaas.toml_sections import read_sections

#: What a key begins with, so that a leaked one can be found.
KEY_PREFIX = "pfs-"
#: The tenant of a key whose holder, such as a trusted proxy, names the tenant of each request.
ANY_TENANT = "*"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_RATE = 1e6
_MAX_COUNT = 1 << 40


class KeyRole(StrEnum):
    """What the holder of a key may do."""

    CLIENT = "client"
    METRICS = "metrics"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key. `sha256` is the digest of the key as hexadecimal digits.

    `tenant`: whose its requests are; empty, nobody's; `*`, who their header says. Limits hold per
    gateway, 0 is none: `tokens_per_minute` counts prompt and output tokens.
    """

    sha256: str
    role: KeyRole = KeyRole.CLIENT
    tenant: str = ""
    requests_per_s: float = 0.0
    concurrent_requests: int = 0
    tokens_per_minute: int = 0


@dataclass(frozen=True, slots=True)
class KeysFile:
    """The keys by name."""

    keys: dict[str, KeyEntry] = field(default_factory=dict)


def key_digest(key: str) -> str:
    """Return what a keys file holds of a key: keys are long and random, so one hash is enough."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def parse_keys(text: str, *, source: str) -> KeysFile:
    """Parse and check a keys file; `source` names it in errors, which never show a value.

    Raises:
        ConfigError: naming source, key and what is allowed.
    """
    for problem in _shape_problems(text):
        raise ConfigError(f"{source}: {problem}")
    found = read_sections(KeysFile, text, source=source)
    for problem in _problems(found.keys):
        raise ConfigError(f"{source}: {problem}")
    return found


def render_keys(keys: Mapping[str, KeyEntry]) -> str:
    """Return the text that `parse_keys` reads back to an equal value."""
    lines = ["# API keys: digests only. Change with `prfaasctl keys`; gateways read it again."]
    for name, entry in keys.items():
        lines += ["", f"[keys.{name}]", f'sha256 = "{entry.sha256}"']
        for item in fields(entry)[1:]:
            value = getattr(entry, item.name)
            if value != item.default:
                lines.append(f"{item.name} = {_rendered(value)}")
    return "\n".join(lines) + "\n"


def _rendered(value: str | float) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def check_entry(name: str, entry: KeyEntry) -> None:
    """Check one key. Raises: ConfigError: naming what is allowed."""
    for problem in _problems({name: entry}):
        raise ConfigError(problem)


def _shape_problems(text: str) -> Iterator[str]:
    """Yield what is no table of tables: the general parser would show the value, maybe a key."""
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError):
        yield "not valid TOML"
        return
    if set(raw) - {"keys"}:
        yield "expected only tables [keys.NAME]"
        return
    keys = raw.get("keys", {})
    for name, entry in keys.items() if isinstance(keys, dict) else [("", None)]:
        if not isinstance(entry, dict):
            yield f"keys.{name[:40]}: expected a table [keys.NAME]"
        elif not isinstance(entry.get("sha256", ""), str):
            yield f"keys.{name[:40]}.sha256: expected 64 hexadecimal digits"


def _problems(keys: Mapping[str, KeyEntry]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name, entry in keys.items():
        try:
            check_name("keys:", name)
        except ConfigError as error:
            yield str(error)
        if not _DIGEST.fullmatch(entry.sha256):
            yield f"keys.{name}.sha256: expected 64 hexadecimal digits"
        if entry.sha256 in seen:
            yield f"keys.{name}: the same key as keys.{seen[entry.sha256]}"
        seen[entry.sha256] = name
        if entry.tenant not in ("", ANY_TENANT) and not is_name(entry.tenant):
            yield f"keys.{name}.tenant: allowed: a name, or {ANY_TENANT!r}"
        yield from _limit_problems(name, entry)


def _limit_problems(name: str, entry: KeyEntry) -> Iterator[str]:
    for limit, value, most in (
        ("requests_per_s", entry.requests_per_s, _MAX_RATE),
        ("concurrent_requests", entry.concurrent_requests, _MAX_COUNT),
        ("tokens_per_minute", entry.tokens_per_minute, _MAX_COUNT),
    ):
        if not 0 <= value <= most:
            yield f"keys.{name}.{limit} = {value}: allowed is 0 (no limit) to {most:g}"
