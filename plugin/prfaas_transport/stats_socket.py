"""Counters on a Unix socket, once or line after line: one thread for all readers.

The protocol is in docs/ARCHITECTURE.md, "Contract: counters".
"""

import contextlib
import json
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from prfaas_transport.stats_reader import ReaderGoneError, StatsReader

log = logging.getLogger("prfaas.transport")

MAX_STREAMS = 16
MAX_READERS = 64
#: Streams get no fresh counters before so many times what the last ones took.
RELIEF = 20.0
_PROBE_TIMEOUT_S = 5.0
_MAX_STATS_BYTES = 16 << 20
_ACCEPT_RETRY_S = 0.1
_IDLE_S = 60.0


class StatsServer:
    """Serves `read()` as JSON lines to all who connect to the socket file `path`.

    A reader that does not read is dropped, and costs the others nothing. Streams take little of the
    process's time: readers share lines, and what is slow to read is read less often.
    """

    def __init__(self, path: str | Path, read: Callable[[], dict[str, Any]]) -> None:
        self._path = Path(path)
        self._read = read
        self._readers: dict[int, StatsReader] = {}
        self._line = b""
        self._fresh_at_s = float("-inf")
        self._is_closing = False
        _remove_stale(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(self._path))
            self._listener.listen(MAX_READERS)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="prfaas-stats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, end all streams and remove the socket file."""
        if self._is_closing:
            return
        self._is_closing = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        for reader in list(self._readers.values()):
            self._drop(reader, "closing")
        self._selector.close()
        self._listener.close()
        os.close(self._wake_fd)
        self._path.unlink(missing_ok=True)

    # The thread

    def _serve(self) -> None:
        while not self._is_closing:
            try:
                self._turn()
            except Exception:
                # Outermost frame of the thread: one failed turn must not end the service.
                log.exception("stats socket %s: turn failed", self._path)
                time.sleep(_ACCEPT_RETRY_S)

    def _turn(self) -> None:
        wakes_at_s = [reader.wakes_at_s for reader in self._readers.values()]
        timeout_s = min(wakes_at_s, default=time.monotonic() + _IDLE_S) - time.monotonic()
        for key, events in self._selector.select(max(0.0, timeout_s)):
            if key.fileobj is self._listener:
                while self._accept():
                    pass
            elif key.fd in self._readers:
                self._on_ready(self._readers[key.fd], events)
        now = time.monotonic()
        for reader in [r for r in self._readers.values() if r.has_output and r.wakes_at_s <= now]:
            self._attempt(reader, partial(reader.flush, now))
        self._answer([r for r in self._readers.values() if r.is_due(now)], now)

    def _accept(self) -> bool:
        """Take on one reader; return whether there may be more."""
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            log.warning("stats socket %s: accept failed: %s", self._path, error)
            time.sleep(_ACCEPT_RETRY_S)
            return False
        if len(self._readers) >= MAX_READERS:
            log.warning("stats socket %s: %d readers are connected", self._path, MAX_READERS)
            sock.close()
            return False
        sock.setblocking(False)
        self._readers[sock.fileno()] = StatsReader(sock, time.monotonic())
        self._selector.register(sock, selectors.EVENT_READ)
        return True

    def _on_ready(self, reader: StatsReader, events: int) -> None:
        now = time.monotonic()
        if events & selectors.EVENT_READ:
            self._attempt(reader, partial(self._take_request, reader, now))
        if events & selectors.EVENT_WRITE and reader.sock.fileno() in self._readers:
            self._attempt(reader, partial(reader.flush, now))

    def _take_request(self, reader: StatsReader, now: float) -> None:
        was_stream = reader.is_stream
        reader.take_request(now)
        is_more = reader.is_stream and not was_stream
        if is_more and sum(other.is_stream for other in self._readers.values()) > MAX_STREAMS:
            raise ReaderGoneError(f"{MAX_STREAMS} streams are open")

    def _answer(self, readers: list[StatsReader], now: float) -> None:
        if not readers:
            return
        if now >= self._fresh_at_s or not all(reader.is_stream for reader in readers):
            try:
                self._line = json.dumps(self._read()).encode() + b"\n"
            except Exception:
                log.exception("stats socket %s: no answer", self._path)
                for reader in readers:
                    self._drop(reader, "no answer")
                return
            took_s = time.monotonic() - now
            self._fresh_at_s = now + RELIEF * took_s
        for reader in readers:
            self._attempt(reader, partial(reader.offer, self._line, now))

    def _attempt(self, reader: StatsReader, action: Callable[[], None]) -> None:
        """Do something with a reader; drop it if that ends it."""
        try:
            action()
        except (ReaderGoneError, OSError) as error:
            self._drop(reader, str(error))
            return
        wanted = selectors.EVENT_READ if reader.wants_read else 0
        wanted |= selectors.EVENT_WRITE if reader.has_output else 0
        if self._selector.get_key(reader.sock).events != wanted:
            self._selector.modify(reader.sock, wanted)

    def _drop(self, reader: StatsReader, why: str) -> None:
        log.debug("stats socket %s: reader dropped: %s", self._path, why)
        fd = reader.sock.fileno()
        self._selector.unregister(reader.sock)
        reader.sock.close()
        del self._readers[fd]


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
        with contextlib.suppress(OSError):  # it may have answered and closed already
            sock.shutdown(socket.SHUT_WR)
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
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
