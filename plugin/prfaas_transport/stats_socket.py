"""Counters on a Unix socket: connect, read one JSON line to the end, close."""

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger("prfaas.transport")

_ANSWER_TIMEOUT_S = 5.0
_MAX_STATS_BYTES = 16 << 20


class StatsServer:
    """Answers every connection to the socket file `path` with `read()` as one JSON line."""

    def __init__(self, path: str | Path, read: Callable[[], dict[str, Any]]) -> None:
        self._path = Path(path)
        self._read = read
        _remove_stale(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(self._path))
            self._listener.listen(16)
        except OSError:
            self._listener.close()
            raise
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="prfaas-stats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and remove the socket file."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if not self._closing:
                    log.exception("stats socket %s: accept failed", self._path)
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_ANSWER_TIMEOUT_S)
            connection.sendall(json.dumps(self._read()).encode() + b"\n")
        except OSError as error:
            log.info("stats socket %s: %s", self._path, error)
        except Exception:
            # Outermost frame of the thread: one failed answer must not end the service.
            log.exception("stats socket %s: no answer", self._path)


def serve_stats(path: str | Path, read: Callable[[], dict[str, Any]]) -> StatsServer:
    """Start a thread that serves `read()` on the Unix socket `path`; a stale file is replaced.

    Raises: OSError if the path cannot be bound, also when another process serves it.
    """
    return StatsServer(path, read)


def read_stats(path: str | Path, timeout_s: float = 1.0) -> dict[str, Any]:
    """Return what a `serve_stats` socket answers.

    Raises: OSError if nobody answers within `timeout_s` per step; ValueError if it is not JSON.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect(str(path))
        data = bytearray()
        while part := sock.recv(1 << 16):
            data += part
            if len(data) > _MAX_STATS_BYTES:
                raise ValueError(f"{path}: more than {_MAX_STATS_BYTES} bytes of stats")
    stats = json.loads(data)
    if not isinstance(stats, dict):
        raise ValueError(f"{path}: stats are not a JSON object")
    return stats


def _remove_stale(path: Path) -> None:
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
