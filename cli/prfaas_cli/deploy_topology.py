"""What `deploy --topology FILE` makes of the file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from prfaas.errors import ConfigError

if TYPE_CHECKING:
    from prfaas_cli.options import DeployOptions


def read_topology(path: Path | None) -> str:
    """Return the text of a topology file that is right; empty without a file.

    Raises:
        ConfigError: it cannot be read, or what in it is not allowed.
    """
    from prfaas_netem import load_topology

    if path is None:
        return ""
    load_topology(path)
    return path.read_text()


def chosen_regions(regions: str | None, topology: str) -> tuple[str, ...]:
    """Return the regions that get engines: those asked for, else the first two of the topology.

    Raises:
        ConfigError: neither says which.
    """
    from prfaas_netem import parse_topology

    if regions is not None:
        return tuple(part.strip() for part in regions.split(","))
    if not topology:
        raise ConfigError("--regions: give two names, as in a,b, or a --topology file")
    return parse_topology(topology).regions[:2]


def link_lines(name: str, options: "DeployOptions") -> Iterator[str]:
    """Yield what the links are, for people: the real ones, also where twins scale them."""
    from prfaas_cli.options import topology_of

    if not options.topology:
        yield f"link: {options.link_rate}, {options.link_rtt} round trip (configured)"
        return
    topology = topology_of(name, replace(options, engine="sglang"))
    for direction in topology.directions():
        way = topology.way(direction.source, direction.target)
        changes = "" if way.schedule is None else f", {len(way.schedule.steps)} changes on schedule"
        yield f"link {way.source} -> {way.target}: {way.spec} (configured){changes}"
