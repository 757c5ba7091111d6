"""The kernel's rtnetlink interface, through pyroute2.

pyroute2 is imported on first use: it takes a third of a second, and most commands never need it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from prfaas_netem.namespace import inside


@contextlib.contextmanager
def route_socket() -> Iterator[Any]:
    """Give a `pyroute2.IPRoute` of the calling thread's namespace."""
    from pyroute2 import IPRoute

    with IPRoute() as socket:
        yield socket


@contextlib.contextmanager
def route_socket_in(namespace: str) -> Iterator[Any]:
    """Give a `pyroute2.IPRoute` of a namespace; the thread is inside it for the whole block."""
    with inside(namespace), route_socket() as socket:
        yield socket


def index_of(socket: Any, interface: str) -> int | None:
    """Return an interface's index, None when there is no such interface."""
    found = socket.link_lookup(ifname=interface)
    return int(found[0]) if found else None
