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
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError, PrfaasError
from prfaas_netem.backend import Backend, choose, open_backend
from prfaas_netem.control import ControlServer
from prfaas_netem.namespace import enter
from prfaas_netem.topology import Direction, Topology

_NICENESS = -15
_REAL_TIME_PRIORITY = 1
_IDLE_S = 60.0


class Emulator:
    """Answers control requests for a running backend."""

    def __init__(self, topology: Topology, backend: Backend) -> None:
        self._topology = topology
        self._backend = backend
        self._specs = dict.fromkeys(topology.directions(), topology.link)
        self._started_at = time.monotonic()

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request.

        Raises: ConfigError when it is not allowed; nothing is changed then.
        """
        operation = request.get("op")
        if operation == "set":
            self._set(request)
        elif operation != "show":
            raise ConfigError(f"request: op = {operation!r}; allowed: show, set")
        return self.show()

    def show(self) -> dict[str, Any]:
        """Return the answer to `show`: see `prfaas_netem.client.show`."""
        directions = [
            {
                "from": direction.source,
                "to": direction.target,
                "spec": spec.to_json(),
                **self._backend.report(direction),
            }
            for direction, spec in self._specs.items()
        ]
        modes = {direction["mode"] for direction in directions}
        return {
            "deployment": self._topology.deployment,
            "backend": self._backend.name,
            "mode": modes.pop() if len(modes) == 1 else "mixed",
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_at, 3),
            "directions": directions,
        }

    def _set(self, request: dict[str, Any]) -> None:
        changes = request.get("link")
        if not isinstance(changes, dict):
            raise ConfigError("request: link must be an object of link fields")
        chosen = self._chosen(request.get("from"), request.get("to"))
        wanted = {direction: self._specs[direction].merged(changes) for direction in chosen}
        for direction, spec in wanted.items():
            self._backend.apply(direction, spec)
            self._specs[direction] = spec

    def _chosen(self, source: object, target: object) -> list[Direction]:
        for name in (source, target):
            if name is not None and name not in self._topology.regions:
                allowed = ", ".join(self._topology.regions)
                raise ConfigError(f"request: no region {name!r}; allowed: {allowed}")
        chosen = [
            direction
            for direction in self._specs
            if source in (None, direction.source) and target in (None, direction.target)
        ]
        if not chosen:
            raise ConfigError("request: from and to are the same region")
        return chosen


def serve(backend: Backend, control: ControlServer, stop: socket.socket) -> None:
    """Run until `stop` is readable. One thread moves the packets and answers the requests."""
    queues = list(backend.queues())
    wait_s: float | None = backend.serve(queues)
    while True:
        callers = control.sockets()
        timeout_s = _IDLE_S if wait_s is None else max(0.0, wait_s)
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
    with _stop_signal() as stop, contextlib.closing(open_backend(name, topology)) as backend:
        emulator = Emulator(topology, backend)
        with contextlib.closing(ControlServer(control_path, emulator.handle)) as control:
            gc.freeze()
            _say_ready(emulator, control_path)
            serve(backend, control, stop)


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
