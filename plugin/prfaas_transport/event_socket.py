"""Cache events on a Unix socket: a reader says what it has, and gets all that came after, for ever.

The reader sends one line, its `Cursor`; it is answered with the cache's shape and then with
batches: those it missed, or a snapshot where they are not kept any more, then whatever happens. A
reader that is too slow for the batches that are kept gets a snapshot in between.
"""

import contextlib
import logging
import os
import select
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from prfaas.cache_events import (
    MAX_LINE_BYTES,
    Batch,
    CacheEvent,
    CacheMirror,
    CacheShape,
    Cursor,
    EventLog,
    decode_batch,
    decode_cursor,
    decode_shape,
    encode_batch,
    encode_cursor,
    encode_shape,
)
from prfaas.errors import ProtocolError

log = logging.getLogger("prfaas.transport")

MAX_READERS = 8
#: How long a reader may take to say what it has, and to take what it is sent.
READER_TIMEOUT_S = 10.0
_MAX_CURSOR_BYTES = 512
#: How often a waiting thread looks whether its reader has gone.
_LOOK_S = 1.0


class EventServer:
    """Publishes the events of one cache. `publish` never waits for a reader."""

    def __init__(self, path: str | Path, shape: CacheShape) -> None:
        self._path = Path(path)
        self._log = EventLog(uuid.uuid4().hex, shape)
        self._changed = threading.Condition()
        self._closing = False
        self._readers: dict[socket.socket, threading.Thread] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The process that served here before is gone, or this is its own next life.
        self._path.unlink(missing_ok=True)
        try:
            self._listener.bind(os.fspath(self._path))
            self._path.chmod(0o600)
            self._listener.listen(MAX_READERS)
        except OSError:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._accept, name="prfaas-events", daemon=True)
        self._thread.start()

    def publish(self, events: Iterable[CacheEvent]) -> None:
        """Take events that happened together."""
        with self._changed:
            self._log.append(events)
            self._changed.notify_all()

    def close(self) -> None:
        """End all readers' connections and remove the socket file."""
        with self._changed:
            self._closing = True
            readers = dict(self._readers)
            self._changed.notify_all()
        for sock in (self._listener, *readers):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in (self._thread, *readers.values()):
            thread.join()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closing:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                if not self._closing:
                    log.exception("event socket %s: accept failed", self._path)
                return
            name = f"prfaas-events-{reader.fileno()}"
            thread = threading.Thread(target=self._serve, args=(reader,), name=name, daemon=True)
            with self._changed:
                is_full = len(self._readers) >= MAX_READERS
                if not is_full and not self._closing:
                    self._readers[reader] = thread
                    thread.start()
                    continue
            if is_full:
                log.warning("event socket %s: more than %d readers", self._path, MAX_READERS)
            reader.close()

    def _serve(self, reader: socket.socket) -> None:
        try:
            reader.settimeout(READER_TIMEOUT_S)
            cursor = decode_cursor(_read_line(reader))
            reader.sendall(encode_shape(self._log.mirror.shape))
            while not self._closing:
                batches = self._wait_for_more(cursor)
                for batch in batches:
                    reader.sendall(encode_batch(batch))
                    cursor = Cursor(batch.session, batch.seq)
                if not batches and _has_gone(reader):
                    return
        except (OSError, ProtocolError) as error:
            log.info("event socket %s: reader dropped: %s", self._path, error)
        except Exception:
            # Outermost frame of the thread: one reader's failure must not look like silence.
            log.exception("event socket %s: reader dropped", self._path)
        finally:
            with self._changed:
                self._readers.pop(reader, None)
            reader.close()

    def _wait_for_more(self, cursor: Cursor) -> list[Batch]:
        """Return what a reader misses; empty after a while without any."""
        with self._changed:
            batches = self._log.since(cursor)
            if batches == [] and not self._closing:
                self._changed.wait(_LOOK_S)
                batches = self._log.since(cursor)
            return self._log.snapshot() if batches is None else batches


class EventReader:
    """Follows one cache: `next_batch` again and again, or `catch_up` for what there is now.

    `mirror` is the cache as far as it was read. After an OSError `connect` goes on where it ended.
    """

    def __init__(self, path: str | Path, *, timeout_s: float = 5.0) -> None:
        self.path = Path(path)
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._rest = bytearray()
        self._cursor = Cursor()
        self.mirror = CacheMirror(CacheShape())

    @property
    def seq(self) -> int:
        """The number of the last batch."""
        return self._cursor.seq

    def connect(self) -> None:
        """Connect, or connect anew.

        Raises:
            OSError: nobody serves the socket.
            ProtocolError: whoever serves it speaks something else.
        """
        self.close()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.connect(os.fspath(self.path))
            self._socket.sendall(encode_cursor(self._cursor))
            shape = decode_shape(self._line())
        except (OSError, ProtocolError):
            self.close()
            raise
        if shape != self.mirror.shape:
            self.mirror = CacheMirror(shape)

    def close(self) -> None:
        """Close the connection; what was read stays."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._rest.clear()

    def next_batch(self) -> Batch:
        """Return the next batch, applied to the mirror.

        Raises:
            TimeoutError: nothing happened in time; ask again.
            OSError: the connection ended.
            ProtocolError: the publisher sent nonsense, or left a batch out.
        """
        batch = decode_batch(self._line())
        expected = Cursor(self._cursor.session, self._cursor.seq + 1)
        if not batch.snapshot and Cursor(batch.session, batch.seq) != expected:
            raise ProtocolError(f"cache events: batch {batch.seq} after {self._cursor.seq}")
        for event in batch.events:
            self.mirror.apply(event)
        if not batch.more:
            self._cursor = Cursor(batch.session, batch.seq)
        return batch

    def catch_up(self, *, quiet_s: float) -> Iterator[Batch]:
        """Yield batches until none came for `quiet_s`. Raises: as `next_batch`, but for quiet."""
        assert self._socket is not None
        self._socket.settimeout(quiet_s)
        try:
            while True:
                yield self.next_batch()
        except TimeoutError:
            return
        finally:
            if self._socket is not None:
                self._socket.settimeout(self._timeout_s)

    def _line(self) -> bytes:
        """Return the next line; what came of it so far is kept when the time is up."""
        assert self._socket is not None
        while (end := self._rest.find(b"\n")) < 0:
            if len(self._rest) > MAX_LINE_BYTES:
                raise ProtocolError(f"cache events: a line of more than {MAX_LINE_BYTES} bytes")
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionResetError(f"{self.path}: the publisher ended the connection")
            self._rest += part
        line = bytes(self._rest[: end + 1])
        del self._rest[: end + 1]
        return line


def _read_line(reader: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        if len(line) > _MAX_CURSOR_BYTES:
            raise ProtocolError("cache events: a reader's first line is too long")
        part = reader.recv(_MAX_CURSOR_BYTES)
        if not part:
            raise ProtocolError("cache events: a reader left without a word")
        line += part
    return bytes(line)


def _has_gone(reader: socket.socket) -> bool:
    """Say whether a reader, who has nothing more to say, left."""
    readable, _, _ = select.select([reader], [], [], 0)
    return bool(readable) and not reader.recv(_MAX_CURSOR_BYTES)
