"""Interfaces, addresses, routes and TCP settings of the namespaces: inspect and repair them."""

from pathlib import Path
from typing import Any

from prfaas.errors import PreflightError
from prfaas_netem import namespace
from prfaas_netem.route_socket import index_of, route_socket_in
from prfaas_netem.topology import PREFIX_BITS, WAN_INTERFACE, Topology
from prfaas_netem.ways import Port, router_interface

_LOOPBACK = 1
_UP = 1
_SYSCTL = Path("/proc/sys/net")
_AFTER_IDLE = "ipv4/tcp_slow_start_after_idle"
_BUFFER_MAX_BYTES = 64 * 1024 * 1024
_BUFFERS = ("tcp_rmem", "tcp_wmem")


def loopback_is_up(name: str) -> bool:
    """Return whether `lo` is up in a namespace."""
    with route_socket_in(name) as socket:
        return _is_up(socket, _LOOPBACK)


def raise_loopback(name: str) -> None:
    """Bring `lo` up in a namespace."""
    with route_socket_in(name) as socket:
        socket.link("set", index=_LOOPBACK, state="up")


def bridge_is_right(topology: Topology, region: str) -> bool:
    """Return whether the router has the bridge of a region with several hosts."""
    with route_socket_in(topology.router_namespace) as socket:
        index = index_of(socket, router_interface(region))
        return index is not None and _kind(socket, index) == "bridge" and _is_up(socket, index)


def make_bridge(topology: Topology, region: str) -> None:
    """Make the bridge to a region's hosts; a wire of an earlier region with one host goes."""
    with route_socket_in(topology.router_namespace) as socket:
        index = index_of(socket, router_interface(region))
        if index is None or _kind(socket, index) != "bridge":
            _delete(socket, router_interface(region))
            socket.link("add", ifname=router_interface(region), kind="bridge")
        index = index_of(socket, router_interface(region))
        socket.link("set", index=index, state="up")


def pair_is_right(topology: Topology, port: Port) -> bool:
    """Return whether the host's and the router's interfaces exist and are each other's peer."""
    with route_socket_in(port.namespace) as socket:
        here, here_peer = _index_and_peer(socket, WAN_INTERFACE)
    with route_socket_in(topology.router_namespace) as socket:
        there, there_peer = _index_and_peer(socket, port.interface)
    return here is not None and there is not None and (here, there) == (there_peer, here_peer)


def make_pair(topology: Topology, port: Port) -> None:
    """Connect a host to the router; what is left of an earlier pair goes first."""
    router = topology.router_namespace
    with route_socket_in(router) as socket:
        _delete(socket, port.interface)
    with route_socket_in(port.namespace) as socket:
        _delete(socket, WAN_INTERFACE)
        with namespace.path_of(router).open("rb") as target:
            peer = {"ifname": port.interface, "net_ns_fd": target.fileno()}
            socket.link("add", ifname=WAN_INTERFACE, kind="veth", peer=peer)


def addresses_are_right(topology: Topology, port: Port) -> bool:
    """Return whether both ends are up with their one address, and the default route stands."""
    gateway = topology.router_address(port.region)
    with route_socket_in(topology.router_namespace) as socket:
        router = _is_settled(socket, router_interface(port.region), gateway)
        if port.bridge is not None:
            router = router and _is_port(socket, port.interface, port.bridge)
    with route_socket_in(port.namespace) as socket:
        here = _is_settled(socket, WAN_INTERFACE, port.address)
        return router and here and _gateways(socket) == [gateway]


def make_addresses(topology: Topology, port: Port) -> None:
    """Address both ends of a pair, bring them up, route everything through the router."""
    gateway = topology.router_address(port.region)
    with route_socket_in(topology.router_namespace) as socket:
        _settle(socket, router_interface(port.region), gateway)
        if port.bridge is not None:
            bridge = index_of(socket, port.bridge)
            index = index_of(socket, port.interface)
            socket.link("set", index=index, master=bridge, state="up")
    with route_socket_in(port.namespace) as socket:
        _settle(socket, WAN_INTERFACE, port.address)
        socket.flush_routes(dst_len=0, table=254)
        socket.route("add", dst="default", gateway=gateway)


def forwarding_is_on(topology: Topology) -> bool:
    """Return whether the router forwards IPv4."""
    with namespace.inside(topology.router_namespace):
        return (_SYSCTL / "ipv4/ip_forward").read_text().strip() == "1"


def turn_forwarding_on(topology: Topology) -> None:
    """Let the router forward IPv4."""
    with namespace.inside(topology.router_namespace):
        _write_sysctl("ipv4/ip_forward", "1")


def tcp_suits_wans(name: str) -> bool:
    """Return whether TCP in a namespace fits a long fat link, as `make_tcp_suit_wans` leaves it."""
    with namespace.inside(name):
        has_large_buffers = all(_buffer_sizes(kind)[2] >= _BUFFER_MAX_BYTES for kind in _BUFFERS)
        return has_large_buffers and (_SYSCTL / _AFTER_IDLE).read_text().strip() == "0"


def make_tcp_suit_wans(name: str) -> None:
    """Let TCP autotuning grow its buffers to 64 MiB in a namespace; the start sizes stay.

    And let connections keep their windows while they are idle, so that a prompt after a pause does
    not begin with a slow start.
    """
    with namespace.inside(name):
        _write_sysctl(_AFTER_IDLE, "0")
        for kind in _BUFFERS:
            low, start, high = _buffer_sizes(kind)
            _write_sysctl(f"ipv4/{kind}", f"{low} {start} {max(high, _BUFFER_MAX_BYTES)}")


def _buffer_sizes(kind: str) -> tuple[int, int, int]:
    low, start, high = (_SYSCTL / "ipv4" / kind).read_text().split()
    return int(low), int(start), int(high)


def _write_sysctl(key: str, value: str) -> None:
    try:
        (_SYSCTL / key).write_text(value)
    except OSError as error:
        raise PreflightError(f"cannot set net/{key} to {value!r}: {error.strerror}") from error


def _is_up(socket: Any, index: int) -> bool:
    return bool(socket.link("get", index=index)[0]["flags"] & _UP)


def _kind(socket: Any, index: int) -> str | None:
    information = socket.link("get", index=index)[0].get_attr("IFLA_LINKINFO")
    return None if information is None else information.get_attr("IFLA_INFO_KIND")


def _is_port(socket: Any, interface: str, bridge: str) -> bool:
    index = index_of(socket, interface)
    if index is None or not _is_up(socket, index):
        return False
    master = socket.link("get", index=index)[0].get_attr("IFLA_MASTER")
    return master is not None and master == index_of(socket, bridge)


def _index_and_peer(socket: Any, interface: str) -> tuple[int | None, int | None]:
    index = index_of(socket, interface)
    if index is None:
        return None, None
    return index, socket.link("get", index=index)[0].get_attr("IFLA_LINK")


def _delete(socket: Any, interface: str) -> None:
    index = index_of(socket, interface)
    if index is not None:
        socket.link("del", index=index)


def _addresses(socket: Any, index: int) -> list[tuple[str, int]]:
    found = socket.get_addr(index=index, family=2)
    return [(entry.get_attr("IFA_ADDRESS"), entry["prefixlen"]) for entry in found]


def _is_settled(socket: Any, interface: str, address: str) -> bool:
    index = index_of(socket, interface)
    if index is None or not _is_up(socket, index):
        return False
    return _addresses(socket, index) == [(address, PREFIX_BITS)]


def _settle(socket: Any, interface: str, address: str) -> None:
    index = index_of(socket, interface)
    if _addresses(socket, index or 0) != [(address, PREFIX_BITS)]:
        socket.flush_addr(index=index)
        socket.addr("add", index=index, address=address, prefixlen=PREFIX_BITS)
    ipv6_off = _SYSCTL / f"ipv6/conf/{interface}/disable_ipv6"
    if ipv6_off.exists():  # the link is IPv4; neighbour discovery would only blur the counters
        ipv6_off.write_text("1")
    socket.link("set", index=index, state="up")


def _gateways(socket: Any) -> list[str]:
    routes = socket.get_default_routes(family=2)
    return [route.get_attr("RTA_GATEWAY") for route in routes]
