"""Incremental decoder: bytes in, frames out; payload stays with the caller."""

from prfaas.errors import ProtocolError
from prfaas.wire import limits
from prfaas.wire.codec import decode_body, parse_header, parse_version
from prfaas.wire.frames import Chunk, Foreign, Frame


class Decoder:
    """Turns a lane's byte stream into frames.

    After `next_frame()` returned a Chunk, `payload_left` bytes of payload come before the next
    frame. The caller takes those that were already buffered with `take_payload()`, reads the rest
    from the socket straight into its destination and reports them with `skip_payload()`.

        decoder.receive(data)
        while (frame := decoder.next_frame()) is not None: ...

    Any ProtocolError is final: the lane must be closed. A first frame of another version comes out
    as Foreign, and what follows it is dropped.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._is_first = True
        self._is_foreign = False
        self.payload_left = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet consumed."""
        return len(self._buffer) - self._at

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes from the socket."""
        if self._is_foreign:
            return
        if self._at == len(self._buffer):
            self._buffer.clear()
            self._at = 0
        elif self._at > limits.MAX_HELLO_BYTES:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next whole frame; None if bytes are missing or payload comes first.

        Raises: ProtocolError.
        """
        if self.payload_left or self.buffered_bytes < limits.HEADER_BYTES:
            return None
        body_at = self._at + limits.HEADER_BYTES
        header = self._buffer[self._at : body_at]
        if self._is_first and (version := parse_version(header)) != limits.VERSION:
            return self._foreign(version)
        kind, body_bytes = parse_header(header)
        if len(self._buffer) < body_at + body_bytes:
            return None
        frame = decode_body(kind, bytes(self._buffer[body_at : body_at + body_bytes]))
        self._at = body_at + body_bytes
        self._is_first = False
        if isinstance(frame, Chunk):
            self.payload_left = frame.payload_bytes
        return frame

    def _foreign(self, version: int) -> Foreign:
        self._is_first, self._is_foreign = False, True
        self._buffer.clear()
        self._at = 0
        return Foreign(version)

    def take_payload(self) -> bytes:
        """Return payload bytes that were buffered; they count as consumed."""
        size = min(self.payload_left, self.buffered_bytes)
        data = bytes(self._buffer[self._at : self._at + size])
        self._at += size
        self.payload_left -= size
        return data

    def skip_payload(self, num_bytes: int) -> None:
        """Count payload bytes that the caller read from the socket itself."""
        if num_bytes > self.payload_left or self.buffered_bytes:
            raise ProtocolError("payload read past its end")
        self.payload_left -= num_bytes
