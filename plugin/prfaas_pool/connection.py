"""A client's connection to the pool service, and the arena that it gives access to."""

import socket
import threading
import time
from typing import Any

from prfaas.errors import PrfaasError, ProtocolError, StateError
from prfaas_pool.arena import Arena
from prfaas_pool.message import LENGTHS, VERSION, Message, check_lengths, decode_fields, encode

#: An answer takes well below a millisecond; whoever waits longer does without the pool.
TIMEOUT_S = 2.0
RETRY_S = 1.0


class Connection:
    """Asks the service, from any thread, one question at a time.

    It connects when first asked, and again, at most every `RETRY_S`, after a failure. `arena` is
    the mapped memory, set once a question was answered; a new service may have a new one.
    `introduction` is said to every service anew.
    """

    def __init__(self, path: str) -> None:
        self.arena: Arena | None = None
        self.introduction: dict[str, Any] | None = None
        self._path = path
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._retry_at_s = 0.0

    def close(self) -> None:
        """End the connection; leases and reservations end with it."""
        with self._lock:
            self._disconnect()
            if self.arena is not None:
                self.arena.close()
                self.arena = None

    def ask(self, fields: dict[str, Any], blob: bytes = b"") -> Message:
        """Send a question and return its answer within `TIMEOUT_S` or a little more.

        Raises:
            PrfaasError: there is no service, or it does not answer as it should.
        """
        with self._lock:
            try:
                if self._socket is None:
                    self._connect()
                return self._exchange(fields, blob)
            except (OSError, PrfaasError, KeyError, TypeError, ValueError) as error:
                if self._socket is not None:
                    self._retry_at_s = time.monotonic() + RETRY_S
                self._disconnect()
                raise StateError(f"prefix pool {self._path}: {error}") from None

    def _connect(self) -> None:
        if time.monotonic() < self._retry_at_s:
            raise StateError("not available a moment ago")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(self._path)
        fields, _ = self._exchange({"op": "hello", "version": VERSION}, b"")
        arena_id = bytes.fromhex(fields["arena"])
        if self.arena is None or self.arena.arena_id != arena_id:
            self.arena = Arena.join(fields["path"], arena_id=arena_id)
        if self.introduction is not None:
            self._exchange(self.introduction, b"")

    def _exchange(self, fields: dict[str, Any], blob: bytes) -> Message:
        assert self._socket is not None
        deadline_s = time.monotonic() + TIMEOUT_S
        self._socket.settimeout(TIMEOUT_S)
        self._socket.sendall(encode(fields, blob))
        json_bytes, blob_bytes = LENGTHS.unpack(self._receive(LENGTHS.size, deadline_s))
        check_lengths(json_bytes, blob_bytes)
        answer = decode_fields(self._receive(json_bytes, deadline_s))
        return answer, self._receive(blob_bytes, deadline_s)

    def _receive(self, size: int, deadline_s: float) -> bytes:
        assert self._socket is not None
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
            got = self._socket.recv_into(view)
            if not got:
                raise ProtocolError("the service closed the connection")
            view = view[got:]
        return bytes(buffer)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
