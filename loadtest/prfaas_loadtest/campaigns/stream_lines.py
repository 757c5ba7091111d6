"""Lines of an answer that comes as a stream, none of them without end."""

import gevent
from geventhttpclient.response import HTTPSocketResponse

MAX_LINE_BYTES = 4 << 20


class EndlessLineError(Exception):
    """A server sends a line that is longer than any event is."""


class StreamLines:
    """Reads an answer's body line by line, each once; others have their turn in between.

    The library's own `readline` waits for the end of a line, however long it is, and looks for it
    from the begin of the line on every time.
    """

    def __init__(self, response: HTTPSocketResponse, *, longest: int = MAX_LINE_BYTES) -> None:
        self._response = response
        self._longest = longest
        self._looked_at = 0

    def next(self) -> bytes:
        """Return the next line with its end; empty where the answer ends.

        Raises:
            EndlessLineError: it is too long.
            OSError: the connection broke.
        """
        response = self._response
        buffer = response._body_buffer  # noqa: SLF001 - the library has no bounded reading
        while True:
            end = buffer.find(b"\n", self._looked_at) + 1
            if end:
                line = bytes(buffer[:end])
                del buffer[:end]
                self._looked_at = 0
                return line
            if len(buffer) > self._longest:
                raise EndlessLineError(f"a line of more than {self._longest} bytes")
            self._looked_at = len(buffer)
            sock = response._sock  # noqa: SLF001
            if response.message_complete or sock is None:
                return b""
            received = sock.recv(response.block_size)
            response.feed(received)
            if not received and not response.message_complete:
                return b""
            gevent.sleep(0)
