"""Fields that frame bodies are made of: fixed structs, texts, bytes, lists of u32."""

import struct
from typing import Any

from prfaas.errors import ProtocolError

_U16 = struct.Struct("!H")


def pack_text(text: str, limit_bytes: int) -> bytes:
    """Return u16 length and UTF-8 bytes. Raises: ValueError over the limit."""
    return pack_bytes(text.encode(), limit_bytes)


def pack_bytes(data: bytes, limit_bytes: int) -> bytes:
    """Return u16 length and the bytes. Raises: ValueError over the limit."""
    if len(data) > limit_bytes:
        raise ValueError(f"{len(data)} bytes, limit {limit_bytes}")
    return _U16.pack(len(data)) + data


def pack_counts(counts: tuple[int, ...]) -> bytes:
    """Return u16 length and one u32 per count."""
    return struct.pack(f"!H{len(counts)}I", len(counts), *counts)


class Reader:
    """Reads fields one after another from a frame body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Return the values of a fixed struct. Raises: struct.error if the body is too short."""
        values = fields.unpack_from(self._body, self._at)
        self._at += fields.size
        return values

    def u16(self, limit: int) -> int:
        """Return a u16 of at most `limit`. Raises: ProtocolError."""
        value: int = self.take(_U16)[0]
        if value > limit:
            raise ProtocolError(f"count {value} is over the limit {limit}")
        return value

    def text(self, limit_bytes: int) -> str:
        """Return a text of at most `limit_bytes` UTF-8 bytes. Raises: ProtocolError."""
        return self.data(limit_bytes).decode()

    def data(self, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` bytes. Raises: ProtocolError."""
        size = self.u16(limit_bytes)
        data = self._body[self._at : self._at + size]
        if len(data) != size:
            raise ProtocolError("bytes run over the end of the frame")
        self._at += size
        return data

    def counts(self, limit: int) -> tuple[int, ...]:
        """Return a list of at most `limit` u32. Raises: ProtocolError."""
        return self.take(struct.Struct(f"!{self.u16(limit)}I"))

    def expect_end(self) -> None:
        """Check that nothing is left. Raises: ProtocolError."""
        if self._at != len(self._body):
            raise ProtocolError(f"{len(self._body) - self._at} bytes too many in the frame")
