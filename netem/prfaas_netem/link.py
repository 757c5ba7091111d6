"""The link emulator process: `python -m prfaas_netem.link --topology FILE --control PATH`.

It enters the router's namespace by itself, prints one JSON line `{"event": "ready", ...}` once
packets can pass, and serves the control socket until SIGTERM or SIGINT. While it does not run, no
packet passes (backend `kernel`: packets pass, still shaped, if it was killed).
"""

import argparse
import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prfaas.errors import PrfaasError
from prfaas_netem.backend import Backend, choose, open_backend
from prfaas_netem.control import ControlServer
from prfaas_netem.emulator import Emulator
from prfaas_netem.namespace import enter
from prfaas_netem.topology import Topology

_NICENESS = -15
_REAL_TIME_PRIORITY = 1
_IDLE_S = 60.0


def serve(
    backend: Backend, emulator: Emulator, control: ControlServer, stop: socket.socket
) -> None:
    """Run until `stop` is readable. One thread moves the packets and answers the requests."""
    queues = list(backend.queues())
    wait_s: float | None = backend.serve(queues)
    while True:
        callers = control.sockets()
        waits = [wait for wait in (wait_s, emulator.follow()) if wait is not None]
        timeout_s = max(0.0, min([_IDLE_S, *waits]))
        sources: list[Any] = [*queues, *callers, stop]
        # select, not epoll: its timeout is in microseconds.
        ready, _, _ = select.select(sources, (), (), timeout_s)
        if stop in ready:
            return
        wait_s = backend.serve([queue for queue in queues if queue in ready])
        for caller in callers:
            if caller in ready:
                control.serve(caller)
                wait_s = 0.0  # a request may have moved what is due


def run(topology: Topology, control_path: Path, *, backend_name: str) -> None:
    """Emulate the link until a signal ends it. Moves the calling thread into the router.

    Raises: any PrfaasError that keeps the link from starting.
    """
    name = choose(backend_name)
    enter(topology.router_namespace)
    _take_precedence()
    seed = random.SystemRandom().getrandbits(32) if topology.seed is None else topology.seed
    with (
        _stop_signal() as stop,
        contextlib.closing(open_backend(name, topology, seed=seed)) as backend,
    ):
        emulator = Emulator(topology, backend, seed=seed)
        with contextlib.closing(ControlServer(control_path, emulator.handle)) as control:
            gc.freeze()
            _say_ready(emulator, control_path)
            serve(backend, emulator, control, stop)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="prfaas_netem.link", description="Emulate the WAN link.")
    parser.add_argument("--topology", type=Path, required=True, help="JSON file of the topology")
    parser.add_argument("--control", type=Path, required=True, help="path of the control socket")
    parser.add_argument("--backend", default="auto", help="auto, kernel or nfqueue")
    options = parser.parse_args(argv)
    try:
        topology = Topology.load(options.topology)
        run(topology, options.control, backend_name=options.backend)
    except PrfaasError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _take_precedence() -> None:
    """Run before ordinary processes where allowed: a late wake-up is a longer round trip."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REAL_TIME_PRIORITY))
    except OSError:
        with contextlib.suppress(OSError):
            os.nice(_NICENESS)


def _say_ready(emulator: Emulator, control_path: Path) -> None:
    shown = emulator.show()
    line = {key: shown[key] for key in ("deployment", "backend", "mode", "pid")}
    line = {"event": "ready", **line, "control": str(control_path)}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _stop_signal() -> Iterator[socket.socket]:
    """Give a socket that is readable once SIGTERM or SIGINT came."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with reader, writer:
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)


if __name__ == "__main__":
    sys.exit(main())
