"""Strangers: connections that talk nonsense to every port of a node."""

import contextlib
import random
import socket
from collections.abc import Iterator

from prfaas.errors import StateError
from prfaas_cli.observation import Observed
from prfaas_netem import inside

_CONNECT_S, _READ_S = 2.0, 0.05
_MOST_BYTES = 4096
_GREETINGS = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x80\x04cos\nsystem\n", b"")


def pester(observed: Observed, node: str, *, seed: int, count: int) -> int:
    """Open connections from the other region, talk nonsense, go; return how many were taken.

    Raises:
        StateError: the node is not registered, or none of its ports can be reached.
    """
    record = (observed.nodes() or {}).get(node)
    if record is None:
        raise StateError(f"{node} is not registered: nobody knows its ports")
    topology = observed.topology
    host = topology.address(record.region)
    other = next(region for region in topology.regions if region != record.region)
    ports = [int(record.url.rstrip("/").rpartition(":")[2]), record.bootstrap_port]
    ports += list(listening_ports(topology.namespace(record.region)))
    chance = random.Random(seed)  # noqa: S311 - nonsense, not a secret
    taken = 0
    for _ in range(count):
        port = chance.choice([port for port in dict.fromkeys(ports) if port])
        noise = chance.choice(_GREETINGS) + chance.randbytes(chance.randrange(1, _MOST_BYTES))
        taken += _visit(topology.namespace(other), (host, port), noise)
    if not taken:
        raise StateError(f"{node}: no port of {host} could be reached from region {other}")
    return taken


def listening_ports(namespace: str) -> Iterator[int]:
    """Yield the TCP ports that anybody listens on in a namespace, on any address.

    Source: Linux, Documentation/networking/proc_net_tcp; state 0A is LISTEN.
    """
    with inside(namespace), open("/proc/thread-self/net/tcp") as table:  # noqa: PTH123
        lines = table.read().splitlines()[1:]
    for line in lines:
        fields = line.split()
        if fields[3] == "0A":
            yield int(fields[1].rpartition(":")[2], 16)


def _visit(namespace: str, address: tuple[str, int], noise: bytes) -> bool:
    with inside(namespace):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    with sock:
        try:
            sock.settimeout(_CONNECT_S)
            sock.connect(address)
        except OSError:
            return False
        with contextlib.suppress(OSError):
            sock.settimeout(_READ_S)
            sock.sendall(noise)
            sock.recv(1)
        return True
