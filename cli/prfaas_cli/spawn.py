"""Start one process of a deployment."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from prfaas.errors import StateError
from prfaas_cli.place import MARKER, Place
from prfaas_cli.process_plan import LISTEN_FD, ProcessSpec

_BACKLOG = 1024


def spawn(place: Place, spec: ProcessSpec, *, pass_fds: tuple[int, ...] = ()) -> "Popen":
    """Start a process in its own session and namespace, its output appended to its log.

    Raises:
        StateError: it cannot be started.
    """
    from prfaas_netem import run_in

    try:
        place.logs.mkdir(parents=True, exist_ok=True)
        place.temporary.mkdir(exist_ok=True)
        log = place.log(spec.name).open("ab")
    except OSError as error:
        raise StateError(f"cannot start {spec.argv[0]}: its log: {error.strerror}") from None
    with log as output:
        settings: dict[str, Any] = {
            "cwd": place.directory,
            # SGLang never removes its temporary files: keep them where destroy does.
            "env": {**os.environ, MARKER: str(place.directory), "TMPDIR": str(place.temporary)},
            "stdin": subprocess.DEVNULL,
            "stdout": output,
            "stderr": subprocess.STDOUT,
            "start_new_session": True,
            "pass_fds": pass_fds,
        }
        try:
            if spec.namespace:
                return run_in(spec.namespace, spec.argv, **settings)
            return subprocess.Popen(spec.argv, **settings)
        except OSError as error:
            raise StateError(f"cannot start {spec.argv[0]}: {error.strerror}") from None


def bind_listener(address: str) -> int:
    """Bind `host:port` in this namespace, listen, and return LISTEN_FD, which is then the socket.

    Raises:
        StateError: the address is in use.
    """
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, int(port)))
            listener.listen(_BACKLOG)
        except OSError as error:
            raise StateError(f"cannot listen on {address}: {error.strerror}") from None
        return os.dup2(listener.fileno(), LISTEN_FD, inheritable=False)


Popen = subprocess.Popen[bytes]


def tail(path: Path, *, lines: int) -> list[str]:
    """Return the last lines of a log, none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 65536))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
