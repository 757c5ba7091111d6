"""A process that has SGLang imported and forks engines on request.

Importing SGLang takes most of an engine's start on a CPU and most of its memory. The fork server
pays both once per machine: `python -m prfaas_cpu.forkserver --socket PATH`, then `spawn(PATH, ...)`
from any process of the same user starts an engine in its own process group, in any network
namespace. An engine outlives the fork server.
"""

import argparse
import ctypes
import gc
import json
import os
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from typing import Any

from prfaas.errors import PrfaasError
from prfaas_cpu import launch

REQUEST_LIMIT_BYTES = 1 << 20
REQUEST_TIMEOUT_S = 10.0
_CLONE_NEWNET = 0x40000000
_PEER_CREDENTIALS = struct.Struct("3i")


def spawn(
    socket_path: str | Path,
    *,
    argv: list[str],
    env: dict[str, str],
    netns: str | None,
    stdout_path: str | Path,
    cwd: str | Path = "/",
) -> int:
    """Ask the fork server at `socket_path` for an engine and return its process id.

    `argv` are SGLang's arguments, `env` the whole environment of the engine, `netns` the name of a
    network namespace or None for the fork server's own; output is appended to `stdout_path`.

    Raises:
        PrfaasError: the fork server cannot be reached or refused.
    """
    request = {
        "argv": argv,
        "env": env,
        "netns": netns,
        "stdout_path": str(stdout_path),
        "cwd": str(cwd),
    }
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(REQUEST_TIMEOUT_S)
            sock.connect(str(socket_path))
            sock.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_read_line(sock))
    except (OSError, ValueError) as error:
        raise PrfaasError(f"fork server {socket_path}: {error}") from None
    if "pid" not in answer:
        raise PrfaasError(f"fork server {socket_path}: {answer.get('error', 'no answer')}")
    return int(answer["pid"])


def _read_line(sock: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        part = sock.recv(65536)
        if not part:
            raise ValueError("connection closed before the end of the line")
        data += part
        if len(data) > REQUEST_LIMIT_BYTES:
            raise ValueError(f"line longer than {REQUEST_LIMIT_BYTES} bytes")
    return bytes(data)


class ForkServer:
    """Listens on a Unix socket that only its own user may use; one request, one fork."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def listen(self) -> None:
        """Bind the socket, replacing one that a dead fork server left behind."""
        self._path.unlink(missing_ok=True)
        old_mask = os.umask(0o177)
        try:
            self._socket.bind(str(self._path))
        finally:
            os.umask(old_mask)
        self._socket.listen(64)

    def run(self) -> None:
        """Serve until SIGTERM. Dead engines are reaped by the kernel."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = self._socket.accept()
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(REQUEST_TIMEOUT_S)
        try:
            _check_peer(connection)
            request = json.loads(_read_line(connection))
            answer: dict[str, Any] = {"pid": self._fork(request, connection)}
        # The outermost frame of one request: a bad one must not end the server.
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            return

    def _fork(self, request: dict[str, Any], connection: socket.socket) -> int:
        namespace = _open_namespace(request["netns"])
        try:
            pid = os.fork()
            if pid == 0:
                self._socket.close()
                connection.close()
                _become_engine(request, namespace)
            return pid
        finally:
            if namespace is not None:
                os.close(namespace)


def _check_peer(connection: socket.socket) -> None:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    if _PEER_CREDENTIALS.unpack(raw)[1] != os.getuid():
        raise PermissionError("only the fork server's own user may start engines")


def _open_namespace(name: str | None) -> int | None:
    if name is None:
        return None
    if "/" in name or name.startswith("."):
        raise ValueError(f"not a namespace name: {name!r}")
    return os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _become_engine(request: dict[str, Any], namespace: int | None) -> None:
    """Turn the forked child into an engine; never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _redirect_output(request["stdout_path"])
        if namespace is not None:
            _enter_namespace(namespace)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(launch.CPU_ENVIRONMENT | request["env"])
        sys.argv = ["sglang", *request["argv"]]
        launch.serve(request["argv"])
        os._exit(0)
    # The outermost frame of the engine: say why it ended, and never return into the server.
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _redirect_output(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)


def _enter_namespace(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)


def main() -> None:
    """Preload SGLang, say `ready`, and serve."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    launch.preload()
    gc.collect()
    gc.freeze()
    server = ForkServer(args.socket)
    server.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.run()


if __name__ == "__main__":
    main()
