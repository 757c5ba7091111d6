"""The topology as a person writes it: a TOML file. Pure but for `load_topology`."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from prfaas import units
from prfaas.errors import ConfigError
from prfaas_netem.link_presets import preset
from prfaas_netem.link_spec import LinkSpec, LinkText
from prfaas_netem.schedule import Schedule, Step
from prfaas_netem.topology import DEFAULT_DEPLOYMENT, Topology
from prfaas_netem.ways import Host, Way

MAX_FILE_BYTES = 1 << 20

_TIME = units.Bounds(0.0, 7 * 86_400.0, "0s to 7 days")
_OPTIONS = set(LinkText.__annotations__)
_SCHEDULE = {"schedule", "repeat_every"}


def load_topology(path: Path) -> Topology:
    """Read a topology file.

    Raises: ConfigError naming the file and what in it is not allowed.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: allowed: {MAX_FILE_BYTES} bytes")
    try:
        return parse_topology(data.decode())
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def parse_topology(text: str) -> Topology:
    """Return the topology of a TOML text; the form is in docs/topology.md.

    Raises: ConfigError naming what is not allowed.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from error
    _check_keys(document, {"deployment", "regions", "defaults", "links", "seed"}, "the file")
    regions = _table(document.get("regions", {}), "regions")
    for name, region in regions.items():
        _check_keys(_table(region, f"regions.{name}"), {"hosts"}, f"regions.{name}")
    default = _spec(_table(document.get("defaults", {}), "defaults"), LinkSpec.default())
    links = document.get("links", [])
    if not isinstance(links, list):
        raise ConfigError("links: allowed: tables [[links]]")
    return Topology.from_json(
        {
            "deployment": document.get("deployment", DEFAULT_DEPLOYMENT),
            "regions": list(regions),
            "link": default.to_json(),
            "ways": [way.to_json() for link in links for way in _ways(link, default, regions)],
            "hosts": [[h.region, h.name] for h in _hosts(regions)],
            "seed": document.get("seed"),
        }
    )


def _hosts(regions: Mapping[str, Any]) -> Iterator[Host]:
    """Yield the hosts beyond the first of each region, which is the region's own namespace."""
    for region, table in regions.items():
        names = table.get("hosts", [region])
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise ConfigError(f"regions.{region}: hosts = {names!r}; allowed: a list of names")
        if len(set(names)) != len(names):
            raise ConfigError(f"regions.{region}: hosts = {names!r}; allowed: different names")
        yield from (Host(region, name) for name in names[1:])


def _ways(link: Any, default: LinkSpec, regions: Collection[str]) -> Iterator[Way]:
    table = _table(link, "links")
    ends = table.get("between")
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(e, str) for e in ends):
        raise ConfigError(f"links: between = {ends!r}; allowed: two regions, as in ['a', 'b']")
    first, second = ends
    for end in ends:
        if end not in regions:
            known = ", ".join(regions)
            raise ConfigError(f"links: between = {ends!r}: no region {end!r}; allowed: {known}")
    where = f"link {first}-{second}"
    _check_keys(table, {"between", "preset", "back", *_OPTIONS, *_SCHEDULE}, where)
    there = {key: value for key, value in table.items() if key not in ("between", "back")}
    back = _table(table.get("back", {}), f"{where}: back")
    _check_keys(back, {"preset", *_OPTIONS, *_SCHEDULE}, f"{where}: back")
    try:
        yield _way(first, second, there, default)
        yield _way(second, first, _over(there, back), default)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _over(there: Mapping[str, Any], back: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the way back: what it does not say is as on the way there."""
    hidden = {"rtt"} if "delay" in back else {"delay"} if "rtt" in back else set()
    if "burst_loss" in back:
        hidden |= {"loss", "loss_correlation"}
    elif "loss" in back:
        hidden |= {"burst_loss", "loss_correlation"}
    if "preset" in back:
        hidden |= _OPTIONS
    if "schedule" in back:
        hidden |= _SCHEDULE
    return {key: value for key, value in there.items() if key not in hidden} | dict(back)


def _way(source: str, target: str, table: Mapping[str, Any], default: LinkSpec) -> Way:
    described = {key: value for key, value in table.items() if key not in _SCHEDULE}
    base = _spec(described, default)
    return Way(source, target, base, _schedule(table, base))


def _schedule(table: Mapping[str, Any], base: LinkSpec) -> Schedule | None:
    steps, period = table.get("schedule"), table.get("repeat_every")
    if steps is None:
        if period is not None:
            raise ConfigError("repeat_every: allowed: with a schedule")
        return None
    if not isinstance(steps, list) or not steps:
        raise ConfigError("schedule: allowed: tables with `at` and options of the link")
    period_s = None if period is None else _seconds(period, "repeat_every")
    return Schedule(steps=tuple(_step(step, base) for step in steps), period_s=period_s)


def _step(value: Any, base: LinkSpec) -> Step:
    table = dict(_table(value, "schedule"))
    at_s = _seconds(table.pop("at", None), "at")
    return Step(at_s, _spec(table, base))


def _spec(table: Mapping[str, Any], base: LinkSpec) -> LinkSpec:
    """Return `base`, or the preset that the table names, with the table's options."""
    _check_keys(table, {"preset", *_OPTIONS}, "options")
    for key, value in table.items():
        if not isinstance(value, str):
            raise ConfigError(f"{key} = {value!r}; allowed: a text, as in '10gbit', '20ms', '2%'")
    if "preset" in table:
        base = preset(table["preset"])
    options = LinkText(**{key: table[key] for key in table if key != "preset"})  # type: ignore[typeddict-item]
    return base.changed(**options)


def _seconds(value: Any, key: str) -> float:
    if not isinstance(value, str):
        raise ConfigError(f"{key} = {value!r}; allowed: a time, as in '30s'")
    return units.parse_duration(value, option=key, bounds=_TIME)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {value!r}; allowed: a table")
    return value


def _check_keys(table: Mapping[str, Any], allowed: set[str], where: str) -> None:
    unknown = sorted(set(table) - allowed)
    if unknown:
        raise ConfigError(
            f"{where}: unknown key {unknown[0]!r}; allowed: {', '.join(sorted(allowed))}"
        )
