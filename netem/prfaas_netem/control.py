"""The control socket of a link emulator: one JSON line in, one JSON line out, then the end."""

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError, PrfaasError, StateError

MAX_LINE_BYTES = 64 * 1024
_MAX_CONNECTIONS = 16
_MAX_PATH_BYTES = 107

Handler = Callable[[dict[str, Any]], dict[str, Any]]


class ControlServer:
    """Serves a Unix stream socket without blocking. Call `serve` with the sockets that are ready.

    Raises: ConfigError for a path that is too long, StateError when another process serves it.
    """

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._partial: dict[socket.socket, bytes] = {}
        self._listener = _listen(path)

    def sockets(self) -> list[socket.socket]:
        """Return what to wait on."""
        return [self._listener, *self._partial]

    def serve(self, ready: socket.socket) -> None:
        """Accept a caller, or read from one and answer."""
        if ready is self._listener:
            self._accept()
        elif ready in self._partial:  # else it was ended since it became ready
            self._read(ready)

    def close(self) -> None:
        """Stop serving and remove the path."""
        for each in self.sockets():
            each.close()
        self._partial.clear()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            caller, _ = self._listener.accept()
            caller.setblocking(False)
            if len(self._partial) >= _MAX_CONNECTIONS:
                # The oldest goes, so that silent callers cannot keep others out.
                self._end(next(iter(self._partial)), "too many callers; try again")
            self._partial[caller] = b""

    def _read(self, caller: socket.socket) -> None:
        try:
            data = caller.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._partial[caller] += data
        line, newline, _ = self._partial[caller].partition(b"\n")
        if newline:
            self._answer(caller, self._handle(line))
            self._end(caller)
        elif len(line) >= MAX_LINE_BYTES:
            self._end(caller, f"request: allowed: {MAX_LINE_BYTES} bytes")
        elif not data:
            self._end(caller)

    def _end(self, caller: socket.socket, error: str | None = None) -> None:
        if error is not None:
            self._answer(caller, {"ok": False, "error": error})
        del self._partial[caller]
        caller.close()

    def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ConfigError("request: allowed: one JSON object on one line")
            return {"ok": True, **self._handler(request)}
        except ValueError:
            return {"ok": False, "error": "request: not JSON; allowed: one JSON object on one line"}
        except PrfaasError as error:
            return {"ok": False, "error": str(error)}

    def _answer(self, caller: socket.socket, answer: dict[str, Any]) -> None:
        # An answer fits any socket buffer; a caller that is gone needs none.
        with contextlib.suppress(OSError):
            caller.send(json.dumps(answer).encode() + b"\n")


def check_path(path: Path) -> None:
    """Raise ConfigError when the path cannot name a Unix socket."""
    size = len(str(path).encode())
    if size > _MAX_PATH_BYTES:
        raise ConfigError(f"--control: {path} has {size} bytes; allowed: {_MAX_PATH_BYTES}")


def _listen(path: Path) -> socket.socket:
    check_path(path)
    if path.exists():
        _clear_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_MAX_CONNECTIONS)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(f"--control: cannot serve {path}: {error.strerror}") from error
    return listener


def _clear_stale(path: Path) -> None:
    if not path.is_socket():
        raise ConfigError(f"--control: {path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise StateError(f"--control: another process serves {path}")
    path.unlink(missing_ok=True)
