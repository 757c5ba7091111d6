"""Names and addresses of the emulated regions of one deployment, and the links between them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.ways import Direction, Host, Port, Way, router_interface

DEFAULT_DEPLOYMENT = "default"
ROUTER = "wan"
WAN_INTERFACE = "wan"
NAMESPACE_PREFIX = "prfaas-"
PREFIX_BITS = 24
MAX_REGIONS = 8
MAX_HOSTS = 32
"""Hosts of one region."""

_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?")
_DEPLOYMENT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?")
_KEYS = {"deployment", "regions", "link", "ways", "hosts", "seed"}


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Regions, their hosts, and the router that carries the links between them.

    Every two regions are linked. `ways` are the directions of links that are described one by one,
    all others are like `link`. `hosts` are those beyond the first of each region. Chances of the
    user-space link come from `seed`; None: from another one at every start.

    Raises: ConfigError when a name is not allowed.
    """

    deployment: str = DEFAULT_DEPLOYMENT
    regions: tuple[str, ...] = ("a", "b")
    link: LinkSpec = field(default_factory=LinkSpec.default)
    ways: tuple[Way, ...] = ()
    hosts: tuple[Host, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        check_deployment(self.deployment)
        self._check_regions()
        self._check_ways()
        self._check_hosts()
        if self.seed is not None and (isinstance(self.seed, bool) or not 0 <= self.seed < 1 << 32):
            raise ConfigError(f"seed: {self.seed!r}; allowed: 0 to {(1 << 32) - 1}")

    def _check_regions(self) -> None:
        if not 2 <= len(self.regions) <= MAX_REGIONS:
            raise ConfigError(
                f"--regions: {len(self.regions)} given; allowed: two to {MAX_REGIONS}, as in a,b"
            )
        for region in self.regions:
            check_region(region)
            if self.regions.count(region) > 1:
                raise ConfigError(f"--regions: {region!r} twice; allowed: different names")

    def _check_ways(self) -> None:
        ends = [(way.source, way.target) for way in self.ways]
        for source, target in ends:
            self._number(source)
            self._number(target)
            if source == target:
                raise ConfigError(f"link {source}-{target}: allowed: between two regions")
            if ends.count((source, target)) > 1:
                raise ConfigError(f"link {source}-{target}: allowed: described once")

    def _check_hosts(self) -> None:
        for host in self.hosts:
            self._number(host.region)
            if not _REGION.fullmatch(host.name):
                raise ConfigError(
                    f"host {host.name!r} of region {host.region}; allowed: 1 to 12 lowercase"
                    " letters, digits and inner dashes"
                )
            if self.hosts.count(host) > 1:
                raise ConfigError(f"host {host.name!r} of region {host.region} twice")
        for region in self.regions:
            count = 1 + sum(host.region == region for host in self.hosts)
            if count > MAX_HOSTS:
                raise ConfigError(f"region {region}: {count} hosts; allowed: {MAX_HOSTS}")

    @classmethod
    def plan(
        cls,
        *,
        deployment: str = DEFAULT_DEPLOYMENT,
        regions: Sequence[str] = ("a", "b"),
        link: LinkSpec | None = None,
    ) -> "Topology":
        """Return a checked topology; no effect on the machine.

        Raises: ConfigError naming the option and what is allowed.
        """
        return cls(deployment=deployment, regions=tuple(regions), link=link or LinkSpec.default())

    def namespace(self, region: str) -> str:
        """Return the network namespace of a region: that of its first host.

        Raises: ConfigError when the region is not in this topology.
        """
        self._number(region)
        return namespace_name(self.deployment, region)

    @property
    def router_namespace(self) -> str:
        """Network namespace of the router in the middle."""
        return namespace_name(self.deployment, ROUTER)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All namespaces: the router's, then those of hosts in the order of regions."""
        ports = (port.namespace for region in self.regions for port in self.ports(region))
        return (self.router_namespace, *ports)

    def address(self, region: str) -> str:
        """Return the IPv4 address of a region's first host; it serves all the region's roles."""
        return f"10.213.{self._number(region)}.2"

    def router_address(self, region: str) -> str:
        """Return the router's address towards a region."""
        return f"10.213.{self._number(region)}.1"

    def subnet(self, region: str) -> str:
        """Return the addresses of a region, as in 10.213.1.0/24."""
        return f"10.213.{self._number(region)}.0/{PREFIX_BITS}"

    def ports(self, region: str) -> tuple[Port, ...]:
        """Return the router's ports to the hosts of a region, the first host's first."""
        number = self._number(region)
        first = Port(
            region, self.namespace(region), self.address(region), router_interface(region), None
        )
        names = [host.name for host in self.hosts if host.region == region]
        if not names:
            return (first,)
        bridge = router_interface(region)
        more = [
            Port(
                region,
                f"{self.namespace(region)}.{name}",
                f"10.213.{number}.{place + 2}",
                f"port{number}-{place}",
                bridge,
            )
            for place, name in enumerate(names, start=1)
        ]
        return (first._replace(interface=f"port{number}-0", bridge=bridge), *more)

    def directions(self) -> Iterator[Direction]:
        """Yield both ways across every link, in the order of their queues."""
        for number, (first, second) in enumerate(combinations(self.regions, 2)):
            yield Direction(first, second, 2 * number)
            yield Direction(second, first, 2 * number + 1)

    def way(self, source: str, target: str) -> Way:
        """Return what a direction is like."""
        for way in self.ways:
            if (way.source, way.target) == (source, target):
                return way
        return Way(source, target, self.link)

    def with_ways(self, *changed: Way) -> "Topology":
        """Return the topology with some directions described anew."""
        ends = {(way.source, way.target) for way in changed}
        kept = (way for way in self.ways if (way.source, way.target) not in ends)
        return replace(self, ways=(*kept, *changed))

    def mapped(self, change: Callable[[LinkSpec], LinkSpec], *, stretch: float = 1.0) -> "Topology":
        """Return the topology with all links changed and the times of schedules stretched."""
        ways = tuple(way.mapped(change, stretch=stretch) for way in self.ways)
        return replace(self, link=change(self.link), ways=ways)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` reads them back."""
        return {
            "deployment": self.deployment,
            "regions": list(self.regions),
            "link": self.link.to_json(),
            "ways": [way.to_json() for way in self.ways],
            "hosts": [[host.region, host.name] for host in self.hosts],
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, value: object) -> "Topology":
        """Return the topology of `to_json`; what is missing takes its default.

        Raises: ConfigError on unknown keys, wrong types and names that are not allowed.
        """
        if not isinstance(value, Mapping) or set(value) - _KEYS:
            raise ConfigError(f"topology: allowed: an object with {', '.join(sorted(_KEYS))}")
        deployment = value.get("deployment", DEFAULT_DEPLOYMENT)
        regions = value.get("regions", ["a", "b"])
        seed = value.get("seed")
        if not isinstance(deployment, str):
            raise ConfigError(f"topology: deployment = {deployment!r}; allowed: a name")
        if not isinstance(regions, list) or not all(isinstance(name, str) for name in regions):
            raise ConfigError(f"topology: regions = {regions!r}; allowed: a list of names")
        if seed is not None and not isinstance(seed, int):
            raise ConfigError(f"topology: seed = {seed!r}; allowed: a whole number")
        return cls(
            deployment=deployment,
            regions=tuple(regions),
            link=LinkSpec.from_json(value.get("link", {})),
            ways=tuple(Way.from_json(way) for way in _list(value, "ways")),
            hosts=tuple(_host(host) for host in _list(value, "hosts")),
            seed=seed,
        )

    @classmethod
    def load(cls, path: Path) -> "Topology":
        """Read a JSON file.

        Raises: ConfigError naming the file.
        """
        try:
            return cls.from_json(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        """Write a JSON file that `load` reads."""
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n")

    def _number(self, region: str) -> int:
        if region not in self.regions:
            raise ConfigError(
                f"region {region!r} is not in deployment {self.deployment};"
                f" allowed: {', '.join(self.regions)}"
            )
        return self.regions.index(region) + 1


def namespace_name(deployment: str, part: str) -> str:
    """Return the namespace of a region, or of the router when `part` is `wan`."""
    if deployment == DEFAULT_DEPLOYMENT:
        return f"{NAMESPACE_PREFIX}{part}"
    return f"{NAMESPACE_PREFIX}{deployment}-{part}"


def check_region(name: str) -> None:
    """Raise ConfigError unless the name can be a region's."""
    if name == ROUTER:
        raise ConfigError(f"--regions: {name!r} is reserved for the router; choose another name")
    if not _REGION.fullmatch(name):
        raise ConfigError(
            f"--regions: {name!r}; allowed: 1 to 12 lowercase letters, digits and inner dashes"
        )


def check_deployment(name: str) -> None:
    """Raise ConfigError unless the name can be a deployment's."""
    if not _DEPLOYMENT.fullmatch(name):
        raise ConfigError(
            f"deployment {name!r}; allowed: 1 to 24 lowercase letters, digits and inner dashes"
        )


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key, [])
    if not isinstance(found, list):
        raise ConfigError(f"topology: {key} = {found!r}; allowed: a list")
    return found


def _host(value: object) -> Host:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"topology: host {value!r}; allowed: [region, name]")
    return Host(*value)
