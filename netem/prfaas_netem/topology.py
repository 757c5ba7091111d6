"""Names and addresses of the emulated regions of one deployment."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError
from prfaas_netem.link_spec import LinkSpec

DEFAULT_DEPLOYMENT = "default"
ROUTER = "wan"
WAN_INTERFACE = "wan"
NAMESPACE_PREFIX = "prfaas-"
PREFIX_BITS = 24

_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?")
_DEPLOYMENT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?")


@dataclass(frozen=True)
class Direction:
    """One way across the link: packets that enter the router from `source` and leave to `target`.

    `queue` is the NFQUEUE number, unique within the router's namespace.
    """

    source: str
    target: str
    queue: int

    @property
    def in_interface(self) -> str:
        """Router interface towards the source region."""
        return router_interface(self.source)

    @property
    def out_interface(self) -> str:
        """Router interface towards the target region."""
        return router_interface(self.target)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Two regions and the router that carries the link between them.

    Raises: ConfigError when a name is not allowed.
    """

    deployment: str = DEFAULT_DEPLOYMENT
    regions: tuple[str, ...] = ("a", "b")
    link: LinkSpec = field(default_factory=LinkSpec.default)

    def __post_init__(self) -> None:
        check_deployment(self.deployment)
        if len(self.regions) != 2:
            raise ConfigError(f"--regions: {len(self.regions)} given; allowed: two, as in a,b")
        for region in self.regions:
            check_region(region)
        if self.regions[0] == self.regions[1]:
            raise ConfigError(f"--regions: {self.regions[0]!r} twice; allowed: two different names")

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
        """Return the network namespace of a region.

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
        """All namespaces: the router's, then the regions' in order."""
        return (self.router_namespace, *(self.namespace(region) for region in self.regions))

    def address(self, region: str) -> str:
        """Return the IPv4 address of a region; it serves all its roles."""
        return f"10.213.{self._number(region)}.2"

    def router_address(self, region: str) -> str:
        """Return the router's address towards a region."""
        return f"10.213.{self._number(region)}.1"

    def directions(self) -> Iterator[Direction]:
        """Yield both ways across the link, in the order of their queues."""
        first, second = self.regions
        yield Direction(first, second, 0)
        yield Direction(second, first, 1)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` reads them back."""
        return {
            "deployment": self.deployment,
            "regions": list(self.regions),
            "link": self.link.to_json(),
        }

    @classmethod
    def from_json(cls, value: object) -> "Topology":
        """Return the topology of `to_json`.

        Raises: ConfigError on unknown keys, wrong types and names that are not allowed.
        """
        if not isinstance(value, Mapping) or set(value) - {"deployment", "regions", "link"}:
            raise ConfigError("topology: allowed: an object with deployment, regions and link")
        deployment = value.get("deployment", DEFAULT_DEPLOYMENT)
        regions = value.get("regions", ["a", "b"])
        if not isinstance(deployment, str):
            raise ConfigError(f"topology: deployment = {deployment!r}; allowed: a name")
        if not isinstance(regions, list) or not all(isinstance(name, str) for name in regions):
            raise ConfigError(f"topology: regions = {regions!r}; allowed: a list of two names")
        link = LinkSpec.from_json(value.get("link", {}))
        return cls(deployment=deployment, regions=tuple(regions), link=link)

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


def router_interface(region: str) -> str:
    """Return the router's interface towards a region; at most 15 characters, the kernel's limit."""
    return f"to-{region}"


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
