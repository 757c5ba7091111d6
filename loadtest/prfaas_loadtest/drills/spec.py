"""A drill as a TOML file: where it is run, under what load, what breaks when, what must hold."""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from prfaas.errors import ConfigError
from prfaas.planning.case_table import NOT_NEGATIVE, POSITIVE, Rule, Table
from prfaas.reasons import Reason, Route
from prfaas_loadtest.drills.fault import FAULT_KEYS, Fault, parse_fault

_TOP = ("name", "about", "kinds", "seed", "site", "load", "fault", "expect")
_SITE = (
    *("instances", "threshold_tokens", "scale", "dilation", "security", "role_switch"),
    *("request_timeout_s", "disk_bytes"),
)
_LOAD = (
    *("seconds", "requests_per_s", "short_tokens", "long_tokens", "long_share"),
    *("output_tokens", "stream_share"),
)
_EXPECT = (
    *("right_share", "reasons", "sees", "may_lose_connections", "fallback_within_s"),
    *("recovery_within_s", "slowest_s", "settle_within_s"),
)
_ZERO_TO_ONE = Rule(lambda value: 0 <= value <= 1, "a number from 0 to 1")
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_SECURITY = ("off", "secret", "mtls")
_MAX_FAULTS = 100
MOST_REQUESTS = 5000
_MOST_TOKENS = 1_000_000
#: Kinds of failures in the list that the library answers.
MOST_KINDS = 47


@dataclass(frozen=True, slots=True)
class SiteSpec:
    """The deployment of twins that a drill runs on; drills with equal ones may share it.

    `disk_bytes`: its files lie on a file system of that size; 0: wherever.
    """

    instances: str = "1,1,1"
    threshold_tokens: int = 2000
    scale: float = 2000.0
    dilation: float = 0.2
    security: str = "off"
    role_switch: bool = False
    request_timeout_s: float = 20.0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked while things break: Poisson arrivals, prompts that nobody has seen before."""

    seconds: float
    requests_per_s: float
    short_tokens: int = 1000
    long_tokens: int = 8000
    long_share: float = 0.5
    output_tokens: int = 12
    stream_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Expectations:
    """What must hold beside what always must.

    `right_share` of the requests get the right answer, the others fail with one of `reasons`.
    `sees` are routes and reasons that must occur, or the drill showed nothing.
    `fallback_within_s` after a fault's begin a long request sent since then has its right answer;
    `recovery_within_s` after the last fault's end all is as before. No right answer takes more than
    `slowest_s`. 0: not asked. `settle_within_s` later pools, rooms, lanes and leases are as before.
    """

    right_share: float = 1.0
    reasons: frozenset[str] = frozenset()
    sees: frozenset[str] = frozenset()
    may_lose_connections: bool = False
    fallback_within_s: float = 0.0
    recovery_within_s: float = 30.0
    slowest_s: float = 0.0
    settle_within_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Drill:
    """A chaos scenario. `kinds` are numbers in the list of failures that others reported."""

    name: str
    about: str
    site: SiteSpec
    load: Load
    faults: tuple[Fault, ...]
    expect: Expectations
    kinds: tuple[int, ...] = ()
    seed: int = 1


def parse_drill(text: str, *, source: str) -> Drill:
    """Read a drill; `source` names it in errors.

    Raises:
        ConfigError: one line, naming file, key, value and what is allowed.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    top = Table(raw, source, "", allowed=_TOP)
    load = _load(top.table("load", allowed=_LOAD))
    rows = top.tables("fault", allowed=FAULT_KEYS)
    if not 1 <= len(rows) <= _MAX_FAULTS:
        raise ConfigError(f"{source}: fault: allowed: 1 to {_MAX_FAULTS} tables [[fault]]")
    name = top.text("name")
    if not _NAME.fullmatch(name):
        top.refuse("name", "1 to 40 lowercase letters, digits and dashes")
    return Drill(
        name=name,
        about=top.text("about"),
        site=_site(top.table("site", allowed=_SITE)),
        load=load,
        faults=tuple(parse_fault(row, load_s=load.seconds) for row in rows),
        expect=_expect(top.table("expect", allowed=_EXPECT)),
        kinds=_kinds(top, raw),
        seed=top.whole("seed", least=0, default=1),
    )


def _site(row: Table) -> SiteSpec:
    security = row.text("security", "off")
    if security not in _SECURITY:
        row.refuse("security", ", ".join(_SECURITY))
    return SiteSpec(
        instances=row.text("instances", "1,1,1"),
        threshold_tokens=row.whole("threshold_tokens", least=0, default=2000),
        scale=row.number("scale", default=2000.0),
        dilation=row.number("dilation", default=0.2),
        security=security,
        role_switch=_flag(row, "role_switch"),
        request_timeout_s=row.number("request_timeout_s", default=20.0),
        disk_bytes=row.whole("disk_bytes", least=64 << 20) if "disk_bytes" in row else 0,
    )


def _load(row: Table) -> Load:
    load = Load(
        seconds=row.number("seconds"),
        requests_per_s=row.number("requests_per_s"),
        short_tokens=row.whole("short_tokens", least=1, default=1000),
        long_tokens=row.whole("long_tokens", least=1, default=8000),
        long_share=row.number("long_share", _ZERO_TO_ONE, 0.5),
        output_tokens=row.whole("output_tokens", least=1, default=12),
        stream_share=row.number("stream_share", _ZERO_TO_ONE, 0.5),
    )
    for key in ("short_tokens", "long_tokens", "output_tokens"):
        if getattr(load, key) > _MOST_TOKENS:
            row.refuse(key, f"a whole number up to {_MOST_TOKENS}")
    if load.seconds * load.requests_per_s > MOST_REQUESTS:
        row.refuse("requests_per_s", f"at most {MOST_REQUESTS} requests in all")
    return load


def _expect(row: Table) -> Expectations:
    known = {*Reason, *Route}
    words = {key: frozenset(_words(row, key)) for key in ("reasons", "sees")}
    for key, given in words.items():
        if given - known:
            row.refuse(key, f"words of {', '.join(sorted(known))}")
    return Expectations(
        right_share=row.number("right_share", _ZERO_TO_ONE, 1.0),
        reasons=words["reasons"],
        sees=words["sees"],
        may_lose_connections=_flag(row, "may_lose_connections"),
        fallback_within_s=row.number("fallback_within_s", NOT_NEGATIVE, 0.0),
        recovery_within_s=row.number("recovery_within_s", POSITIVE, 30.0),
        slowest_s=row.number("slowest_s", NOT_NEGATIVE, 0.0),
        settle_within_s=row.number("settle_within_s", POSITIVE, 30.0),
    )


def _kinds(top: Table, raw: dict[str, Any]) -> tuple[int, ...]:
    given = raw.get("kinds", [])
    if not isinstance(given, list) or not all(
        type(kind) is int and 1 <= kind <= MOST_KINDS for kind in given
    ):
        top.refuse("kinds", f"a list of whole numbers from 1 to {MOST_KINDS}")
    return tuple(given)


def _words(row: Table, key: str) -> list[str]:
    value = row.value(key) if key in row else []
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        row.refuse(key, "a list of words")
    return value


def _flag(row: Table, key: str) -> bool:
    value = row.value(key) if key in row else False
    if not isinstance(value, bool):
        row.refuse(key, "true or false")
    return value
