"""One reader of the counters: what it asked for, and what is on its way to it."""

import json
import socket

GRACE_S = 0.05
STALL_S = 2.0
PERIODS_MS = (100, 5000)
_MAX_REQUEST_BYTES = 256


class ReaderGoneError(Exception):
    """The reader left, does not read, or said what is no request."""


class StatsReader:
    """A connection to the counters' socket; its socket does not block.

    Who says nothing for `GRACE_S`, or ends its side, gets one line and the end. Who says
    `{"stream": N}` gets a line every N ms until it goes. `due_s` is when the next line is.
    """

    def __init__(self, sock: socket.socket, now: float) -> None:
        self.sock = sock
        self.period_s: float | None = None
        self.due_s = now + GRACE_S
        self._request = bytearray()
        self._output = memoryview(b"")
        self._is_last = False
        self._stalls_at_s = 0.0

    @property
    def is_stream(self) -> bool:
        """Say whether it asked for line after line."""
        return self.period_s is not None

    @property
    def has_output(self) -> bool:
        """Say whether a line is on its way."""
        return len(self._output) > 0

    @property
    def wants_read(self) -> bool:
        """Say whether what it says, or that it left, matters; a half-closed one stays readable."""
        return not self._is_last

    @property
    def wakes_at_s(self) -> float:
        """When there is something to do even if the socket is not ready."""
        return self._stalls_at_s if self.has_output else self.due_s

    def is_due(self, now: float) -> bool:
        """Say whether it is to get a line now."""
        return self.due_s <= now and not self.has_output

    def take_request(self, now: float) -> None:
        """Read what came. Raises: ReaderGoneError, OSError."""
        try:
            part = self.sock.recv(_MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        if self.is_stream:
            raise ReaderGoneError("closed" if not part else "it said more than one line")
        if not part:
            self.due_s = now
            return
        self._request += part
        if b"\n" in self._request:
            self.period_s = _period_s(bytes(self._request))
            self.due_s = now
        elif len(self._request) >= _MAX_REQUEST_BYTES:
            raise ReaderGoneError("its request is too long")

    def offer(self, line: bytes, now: float) -> None:
        """Send a line; not while one is under way. Raises: as `flush`."""
        if self.period_s is None:
            self._is_last = True
        else:
            # On a common grid, so that readers with one period share one line.
            self.due_s = (now // self.period_s + 1) * self.period_s
        self._output = memoryview(line)
        self._stalls_at_s = now + STALL_S
        self.flush(now)

    def flush(self, now: float) -> None:
        """Write what can be written. Raises: ReaderGoneError when all is said, OSError."""
        try:
            self._output = self._output[self.sock.send(self._output) :]
        except BlockingIOError:
            if now >= self._stalls_at_s:
                raise ReaderGoneError("it does not read") from None
        if self._is_last and not self.has_output:
            raise ReaderGoneError("answered")


def _period_s(request: bytes) -> float:
    """Return the period that a request names. Raises: ReaderGoneError."""
    line, _, rest = request.partition(b"\n")
    low, high = PERIODS_MS
    try:
        asked = json.loads(line)
    except ValueError:
        asked = None
    if rest or not isinstance(asked, dict) or set(asked) != {"stream"}:
        raise ReaderGoneError('the request is not {"stream": MS}')
    period_ms = asked["stream"]
    if type(period_ms) is not int or not low <= period_ms <= high:
        raise ReaderGoneError(f"stream: allowed are {low} to {high} ms")
    return period_ms / 1000
