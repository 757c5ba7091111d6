"""Ports for servers that tests start."""

import contextlib
import itertools
import random
import socket

_PORTS = itertools.cycle(random.SystemRandom().sample(range(20_000, 29_000), 9_000))


def free_port() -> int:
    """Return a loopback port that nobody listens on right now, and that nobody was promised.

    It lies below those that the kernel gives out by itself: an engine takes many of these while it
    starts, and might take the one that another engine was promised.
    """
    for port in itertools.islice(_PORTS, 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free between 20000 and 29000")
