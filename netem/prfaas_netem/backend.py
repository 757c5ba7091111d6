"""The two ways to shape a link, behind one interface, and the choice between them by trying."""

from collections.abc import Sequence
from typing import Any, Protocol

from prfaas.errors import ConfigError, PreflightError, StateError
from prfaas_netem.kernel_link import KernelLink, probe_netem
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.namespace import throwaway
from prfaas_netem.packet_queue import PacketQueue
from prfaas_netem.rules import probe_queue_rule
from prfaas_netem.topology import Topology
from prfaas_netem.user_space_link import UserSpaceLink
from prfaas_netem.ways import Direction

BACKENDS = ("kernel", "nfqueue")


class Backend(Protocol):
    """A link that runs. Made and used by one thread, inside the router's namespace."""

    name: str

    def apply(self, direction: Direction, spec: LinkSpec) -> None:
        """Change one direction from now on."""

    def report(self, direction: Direction) -> dict[str, Any]:
        """Return mode and counters of one direction: see `prfaas_netem.client.show`."""

    def queues(self) -> Sequence[PacketQueue]:
        """Return what `serve` wants to be called for when readable."""

    def serve(self, ready: Sequence[PacketQueue]) -> float | None:
        """Move the packets of the ready queues; return the seconds until the next one is due."""

    def close(self) -> None:
        """Stop. The link is down afterwards."""


def available() -> tuple[str, ...]:
    """Return the backends that this machine can run, best first, each tried in a new namespace.

    Raises: PreflightError when not allowed to make a namespace.
    """
    found = []
    with throwaway():
        if probe_netem():
            found.append("kernel")
    with throwaway():
        if _probe_nfqueue():
            found.append("nfqueue")
    return tuple(found)


def choose(wanted: str = "auto") -> str:
    """Return the backend to use.

    Raises: ConfigError for an unknown name, PreflightError when the machine cannot run it.
    """
    if wanted not in ("auto", *BACKENDS):
        raise ConfigError(f"--backend: {wanted!r}; allowed: auto, {', '.join(BACKENDS)}")
    found = available()
    if wanted in found:
        return wanted
    if wanted == "auto" and found:
        return found[0]
    need = "netem" if wanted == "kernel" else "NFQUEUE (netfilter)"
    need = "neither netem nor NFQUEUE (netfilter)" if wanted == "auto" else f"no {need}"
    raise PreflightError(f"the link cannot be emulated: this kernel has {need}")


def open_backend(name: str, topology: Topology, *, seed: int) -> Backend:
    """Start a backend for the topology's links; the calling thread is inside the router.

    `seed` is for a link in user space: the same packets meet the same chances.
    """
    if name == KernelLink.name:
        return KernelLink(topology)
    return UserSpaceLink(topology, seed=seed)


def _probe_nfqueue() -> bool:
    try:
        probe_queue_rule()
        PacketQueue(0, super_packets=True).close()
    except (PreflightError, StateError):
        return False
    return True
