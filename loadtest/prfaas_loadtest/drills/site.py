"""What a drill needs of the deployment that it is run on: narrow functions, given by the caller.

All of them block; none changes more than it says. What they do not know of raises StateError.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]

#: Connections that are kept for the next request, and lanes that a path was found to need.
DESCRIPTORS_MORE = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What must be the same after a drill as before it.

    `values`: requests, rooms, memory in use, by node and name. `pairs`: peers with lanes between
    them. `nodes`: those registered. `leases`: how many there are; None when etcd does not tell.
    `descriptors`: open files and sockets by process, one life of it; they may grow by a few.
    """

    values: Mapping[str, float]
    pairs: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    leases: int | None = None
    descriptors: Mapping[str, int] = field(default_factory=dict)

    def differences(self, now: "Snapshot") -> list[str]:
        """Return what is not as it was, in words."""
        found = [
            f"{name} is {now.values.get(name, 'unknown')}, was {value:g}"
            for name, value in self.values.items()
            if now.values.get(name) != value
        ]
        found += [f"no lanes {pair}" for pair in sorted(self.pairs - now.pairs)]
        found += [f"{node} is not registered" for node in sorted(self.nodes - now.nodes)]
        if now.leases != self.leases:
            found.append(f"{now.leases} leases, were {self.leases}")
        found += [
            f"{process} has {now.descriptors[process]} descriptors, had {count}"
            for process, count in self.descriptors.items()
            if now.descriptors.get(process, 0) > count + DESCRIPTORS_MORE
        ]
        return found


class Site(Protocol):
    """A deployment, as drills reach it."""

    @property
    def url(self) -> str:
        """Where its API is."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request to the API must have, such as a key."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What to trust where the API speaks TLS."""

    @property
    def processes(self) -> Sequence[str]:
        """Names of what can be killed: a node's name means its engine, `<node>.agent` its agent."""

    @property
    def twins(self) -> Sequence[str]:
        """Names of the engines that take `inject`."""

    def process(self, name: str) -> Any:
        """Return the identity of a process as it runs now, None when it does not."""

    def signal(self, name: str, number: int) -> bool:
        """Signal a process and its children; return whether there was one."""

    def pause(self, process: Any) -> None:
        """Stop a process, named by its identity, for a moment; nothing when it is gone."""

    def resume(self, process: Any) -> None:
        """Let a stopped process go on; nothing when it is gone."""

    def link(self) -> Json:
        """Return the link as it is set, for `set_link`."""

    def set_link(self, wanted: Json) -> None:
        """Set the link to what `link` returned or what was made of that."""

    def inject(self, node: str, faults: Json) -> None:
        """Have a twin be slow or hang."""

    def fill_disk(self) -> None:
        """Fill the file system that the site's files lie on."""

    def free_disk(self) -> None:
        """Give back what `fill_disk` took."""

    def pester(self, node: str, seed: int, count: int) -> int:
        """Connect to the ports of a node and talk nonsense; return how many connections it took."""

    def change_role(self, node: str) -> None:
        """Have a node take the other role, and wait for it."""

    def step_clock(self, name: str, step_s: float) -> None:
        """Set a process's clock forward or back by so much; 0 is the true time."""

    def problems(self) -> list[str]:
        """Return everything that is not as a healthy site is, in words."""

    def snapshot(self) -> Snapshot:
        """Return what must be the same before and after. Raises: StateError, it cannot be told."""

    def requests_counted(self) -> float | None:
        """Return how many requests the gateway has counted; None when it does not tell."""
