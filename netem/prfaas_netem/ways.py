"""Parts of a topology: hosts of a region, ways of a link, ports of the router."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from prfaas.errors import ConfigError
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.schedule import Schedule


@dataclass(frozen=True)
class Direction:
    """One way across a link: packets that enter the router from `source` and leave to `target`.

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


@dataclass(frozen=True)
class Way:
    """What one direction of a link is like, and how that changes over time."""

    source: str
    target: str
    spec: LinkSpec
    schedule: Schedule | None = None

    def mapped(self, change: Callable[[LinkSpec], LinkSpec], *, stretch: float) -> "Way":
        """Return the way with its specs changed and the times of its schedule stretched."""
        schedule = self.schedule and self.schedule.mapped(change, stretch=stretch)
        return replace(self, spec=change(self.spec), schedule=schedule)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "from": self.source,
            "to": self.target,
            "spec": self.spec.to_json(),
            "schedule": None if self.schedule is None else self.schedule.to_json(),
        }

    @classmethod
    def from_json(cls, value: object) -> "Way":
        """Return what `to_json` gave.

        Raises: ConfigError on anything else.
        """
        keys = {"from", "to", "spec", "schedule"}
        if not isinstance(value, Mapping) or set(value) != keys:
            raise ConfigError(f"topology: a way needs {', '.join(sorted(keys))}")
        source, target = value["from"], value["to"]
        if not isinstance(source, str) or not isinstance(target, str):
            raise ConfigError("topology: a way's from and to must be names of regions")
        schedule = None if value["schedule"] is None else Schedule.from_json(value["schedule"])
        return cls(source, target, LinkSpec.from_json(value["spec"]), schedule)


@dataclass(frozen=True)
class Host:
    """A further host of a region, with a namespace of its own; the first is the region's."""

    region: str
    name: str


class Port(NamedTuple):
    """One end of a wire into the router: a host's namespace and address, the router's interface.

    `bridge` is the router's bridge that the interface belongs to, where a region has more hosts.
    """

    region: str
    namespace: str
    address: str
    interface: str
    bridge: str | None


def router_interface(region: str) -> str:
    """Return the router's interface towards a region; at most 15 characters, the kernel's limit."""
    return f"to-{region}"
