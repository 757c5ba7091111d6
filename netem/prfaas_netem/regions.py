"""Make, check and remove the namespaces of a deployment."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from prfaas.errors import StateError
from prfaas_netem import interface, namespace, owner, preflight, rules
from prfaas_netem.topology import Topology, check_deployment
from prfaas_netem.ways import Port


class Piece(NamedTuple):
    """One thing to build: its name, whether it is right, and how it is made right.

    Later pieces rely on earlier ones.
    """

    name: str
    is_right: Callable[[], bool]
    make: Callable[[], None]


def create(topology: Topology) -> tuple[str, ...]:
    """Build what is missing, repair what is half there, leave what is right.

    The link stays down until its emulator runs. Returns the names of the pieces that were made.

    Raises: PreflightError when the machine cannot, StateError when another deployment owns a name.
    """
    preflight.require()
    made = []
    for piece in _pieces(topology):
        if not piece.is_right():
            piece.make()
            made.append(piece.name)
    return tuple(made)


def exists(topology: Topology) -> bool:
    """Return whether everything that `create` makes is there and right.

    Raises: PreflightError when not allowed to look.
    """
    try:
        return all(piece.is_right() for piece in _pieces(topology))
    except StateError:
        return False


def remove(target: Topology | str) -> tuple[str, ...]:
    """Remove all namespaces of a deployment, with the interfaces and rules inside them.

    Takes a topology or a deployment's name. Ends no process. Returns the names removed.

    Raises: StateError when processes still live in one of them; then nothing is removed.
    """
    deployment = target.deployment if isinstance(target, Topology) else target
    check_deployment(deployment)
    preflight.require()
    found = owner.namespaces_of(deployment)
    for name in found:
        _require_empty(name)
    for name in found:
        _delete(name)
    return found


def _pieces(topology: Topology) -> Iterator[Piece]:
    for name in topology.namespaces:
        deployment = topology.deployment
        yield Piece(
            f"namespace {name}",
            partial(_is_ours, name, deployment),
            partial(_make_namespace, name, deployment),
        )
        yield Piece(
            f"loopback of {name}",
            partial(interface.loopback_is_up, name),
            partial(interface.raise_loopback, name),
        )
    yield Piece(
        "link rules",
        partial(rules.queue_rules_stand, topology),
        partial(rules.make_queue_rules, topology),
    )
    yield Piece(
        "forwarding",
        partial(interface.forwarding_is_on, topology),
        partial(interface.turn_forwarding_on, topology),
    )
    for region in topology.regions:
        yield from _region_pieces(topology, region)


def _region_pieces(topology: Topology, region: str) -> Iterator[Piece]:
    ports = topology.ports(region)
    if ports[0].bridge is not None:
        yield Piece(
            f"bridge of region {region}",
            partial(interface.bridge_is_right, topology, region),
            partial(interface.make_bridge, topology, region),
        )
    for port in ports:
        yield from _host_pieces(topology, port)


def _host_pieces(topology: Topology, port: Port) -> Iterator[Piece]:
    name = port.namespace
    yield Piece(
        f"TCP of {name}",
        partial(interface.tcp_suits_wans, name),
        partial(interface.make_tcp_suit_wans, name),
    )
    yield Piece(
        f"interface of {name}",
        partial(interface.pair_is_right, topology, port),
        partial(interface.make_pair, topology, port),
    )
    yield Piece(
        f"addresses of {name}",
        partial(interface.addresses_are_right, topology, port),
        partial(interface.make_addresses, topology, port),
    )


def _is_ours(name: str, deployment: str) -> bool:
    found = owner.owner_of(name)
    if found is not None and found != deployment:
        raise StateError(f"network namespace {name} belongs to deployment {found}; remove that one")
    return found == deployment


def _make_namespace(name: str, deployment: str) -> None:
    from pyroute2 import netns

    if not namespace.is_usable(name):
        _delete(name)
        netns.create(name)
    owner.mark(name, deployment)


def _require_empty(name: str) -> None:
    found = namespace.processes_in(name)
    if found:
        shown = ", ".join(f"{process.pid} ({process.name})" for process in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise StateError(f"processes still run in network namespace {name}: {shown}{more}")


def _delete(name: str) -> None:
    from pyroute2 import netns

    with contextlib.suppress(FileNotFoundError):
        netns.remove(name)
