"""Encode and decode frames: 8-byte header, then a body; integers are big-endian.

header: magic "PF", version u8, type u8, body_bytes u32.
"""

import re
import struct
from collections.abc import Callable

from prfaas.errors import ProtocolError
from prfaas.wire import limits
from prfaas.wire.fields import Reader, pack_bytes, pack_counts, pack_text
from prfaas.wire.frames import (
    Abort,
    Aborted,
    Ack,
    Chunk,
    Done,
    Encoding,
    Fin,
    Frame,
    Hello,
    Open,
    Ping,
    Pong,
    Priority,
    Refuse,
    Welcome,
)

HEADER = struct.Struct("!2sBBI")
_ROOM = struct.Struct("!QI")
_OPEN = struct.Struct("!QIIIB")
_CHUNK = struct.Struct("!QIIHHIIIIQB")
_ENCODINGS = frozenset(Encoding)
_CHUNK_DIGEST_AT = 44  # in the frame, header included
_HELLO = struct.Struct("!QHH32sI")
_WELCOME = struct.Struct("!QI")
_U64 = struct.Struct("!Q")
_REASON = re.compile(r"[a-z0-9_]{1,64}")


def encode(frame: Frame) -> bytes:
    """Return header and body of `frame`; the payload of a CHUNK is not part of it.

    Raises: ValueError if a field is outside the limits.
    """
    if type(frame) not in _ENCODERS:
        raise ValueError(f"{frame!r} is not for sending")
    kind, encode_body = _ENCODERS[type(frame)]
    version = frame.version if isinstance(frame, Refuse) else limits.VERSION
    try:
        body = encode_body(frame)
    except struct.error as error:
        raise ValueError(f"{frame!r} does not fit the wire format: {error}") from error
    if len(body) > body_limit(kind):
        raise ValueError(f"{type(frame).__name__} body of {len(body)} bytes is over the limit")
    return HEADER.pack(limits.MAGIC, version, kind, len(body)) + body


def set_digest(chunk: bytearray, digest: int) -> None:
    """Put a digest into an encoded CHUNK, whose payload was not known to be final before."""
    _U64.pack_into(chunk, _CHUNK_DIGEST_AT, digest)


def body_limit(kind: int) -> int:
    """Return the most body bytes that a frame of this type may have."""
    return limits.MAX_HELLO_BYTES if kind == HELLO_KIND else limits.MAX_BODY_BYTES


def parse_version(data: bytes | bytearray | memoryview) -> int:
    """Return the version that an 8-byte header names. Raises: ProtocolError without the magic."""
    magic, version, _, _ = HEADER.unpack(data)
    if magic != limits.MAGIC:
        raise ProtocolError(f"not a PrfaaS frame: starts with {magic!r}")
    return int(version)


def parse_header(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return (type, body_bytes) of an 8-byte header. Raises: ProtocolError."""
    version = parse_version(data)
    _, _, kind, body_bytes = HEADER.unpack(data)
    if version != limits.VERSION:
        raise ProtocolError(f"wire version {version}, this side speaks {limits.VERSION}")
    if kind not in _DECODERS:
        raise ProtocolError(f"unknown frame type {kind}")
    if body_bytes > body_limit(kind):
        raise ProtocolError(f"frame type {kind} with {body_bytes} body bytes is over the limit")
    return kind, body_bytes


def decode_body(kind: int, body: bytes) -> Frame:
    """Return the frame of type `kind` with this body. Raises: ProtocolError."""
    reader = Reader(body)
    try:
        frame = _DECODERS[kind](reader)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed frame of type {kind}: {error}") from error
    reader.expect_end()
    return frame


def _encode_hello(frame: Hello) -> bytes:
    if len(frame.digest) != limits.DIGEST_BYTES:
        raise ValueError(f"digest of {len(frame.digest)} bytes")
    parts = [
        _HELLO.pack(frame.session, frame.lane, frame.lanes, frame.digest, frame.features),
        pack_text(frame.node_id, limits.MAX_NODE_ID_BYTES),
        pack_bytes(frame.auth, limits.MAX_AUTH_BYTES),
        struct.pack("!H", len(frame.groups)),
    ]
    for name, item_bytes in frame.groups:
        parts += [pack_text(name, limits.MAX_NAME_BYTES), pack_counts(item_bytes)]
    return b"".join(parts)


def _decode_hello(reader: Reader) -> Hello:
    session, lane, lanes, digest, features = reader.take(_HELLO)
    if not lane < lanes <= limits.MAX_LANES:
        raise ProtocolError(f"HELLO: lane {lane} of {lanes}")
    node_id = reader.text(limits.MAX_NODE_ID_BYTES)
    if not node_id:
        raise ProtocolError("HELLO: empty node id")
    auth = reader.data(limits.MAX_AUTH_BYTES)
    groups: list[tuple[str, tuple[int, ...]]] = []
    num_entries = 0
    for _ in range(reader.u16(limits.MAX_GROUPS)):
        name = reader.text(limits.MAX_NAME_BYTES)
        item_bytes = reader.counts(limits.MAX_ENTRIES)
        num_entries += len(item_bytes)
        groups.append((name, item_bytes))
    if num_entries > limits.MAX_ENTRIES:
        raise ProtocolError(f"HELLO: {num_entries} entries")
    return Hello(node_id, session, lane, lanes, digest, tuple(groups), features, auth)


def _encode_welcome(frame: Welcome) -> bytes:
    head = _WELCOME.pack(frame.session, frame.features)
    node_id = pack_text(frame.node_id, limits.MAX_NODE_ID_BYTES)
    return head + node_id + pack_bytes(frame.auth, limits.MAX_AUTH_BYTES)


def _decode_welcome(reader: Reader) -> Welcome:
    session, features = reader.take(_WELCOME)
    node_id = reader.text(limits.MAX_NODE_ID_BYTES)
    return Welcome(node_id, session, features, reader.data(limits.MAX_AUTH_BYTES))


def _pack_reason(reason: str, text: str) -> bytes:
    if not _REASON.fullmatch(reason):
        raise ValueError(f"reason {reason!r} is not a word of [a-z0-9_]")
    return pack_text(reason, limits.MAX_REASON_BYTES) + pack_text(text, limits.MAX_TEXT_BYTES)


def _read_reason(reader: Reader) -> tuple[str, str]:
    reason = reader.text(limits.MAX_REASON_BYTES)
    if not _REASON.fullmatch(reason):
        raise ProtocolError(f"reason {reason!r} is not a word of [a-z0-9_]")
    return reason, reader.text(limits.MAX_TEXT_BYTES)


def _encode_refuse(frame: Refuse) -> bytes:
    return _pack_reason(frame.reason, frame.text)


def _decode_refuse(reader: Reader) -> Refuse:
    return Refuse(*_read_reason(reader))


def _encode_open(frame: Open) -> bytes:
    head = _OPEN.pack(
        frame.room, frame.attempt, frame.deadline_ms, frame.prefix_tokens, frame.priority
    )
    capability = pack_bytes(frame.capability, limits.MAX_CAPABILITY_BYTES)
    return head + capability + pack_counts(frame.grants)


def _decode_open(reader: Reader) -> Open:
    room, attempt, deadline_ms, prefix_tokens, priority = reader.take(_OPEN)
    if priority > Priority.BACKGROUND:
        raise ProtocolError(f"OPEN: priority {priority}")
    capability = reader.data(limits.MAX_CAPABILITY_BYTES)
    grants = reader.counts(limits.MAX_GROUPS)
    return Open(room, attempt, deadline_ms, prefix_tokens, grants, priority, capability)


def _encode_chunk(frame: Chunk) -> bytes:
    return _CHUNK.pack(
        frame.room,
        frame.attempt,
        frame.chunk,
        frame.group,
        frame.entry,
        frame.start,
        frame.count,
        frame.payload_bytes,
        frame.plain_bytes,
        frame.digest,
        frame.encoding,
    )


def _decode_chunk(reader: Reader) -> Chunk:
    frame = Chunk(*reader.take(_CHUNK))
    if not frame.count or frame.start + frame.count > limits.U32_MAX:
        raise ProtocolError(f"CHUNK: items {frame.start}+{frame.count}")
    if not 0 < frame.payload_bytes <= limits.MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"CHUNK: payload of {frame.payload_bytes} bytes")
    _check_encoding(frame)
    return frame


def _check_encoding(frame: Chunk) -> None:
    """An encoding must make the payload smaller: nobody can have us hold more than we granted."""
    plain_bytes, payload_bytes = frame.plain_bytes, frame.payload_bytes
    if plain_bytes > limits.MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"CHUNK: payload of {plain_bytes} bytes when decoded")
    if frame.encoding not in _ENCODINGS:
        raise ProtocolError(f"CHUNK: unknown encoding {frame.encoding}")
    is_plain = frame.encoding == Encoding.PLAIN
    if plain_bytes != payload_bytes if is_plain else plain_bytes <= payload_bytes:
        text = f"{payload_bytes} bytes for {plain_bytes} decoded"
        raise ProtocolError(f"CHUNK: encoding {frame.encoding}: {text}")
    if not is_plain and plain_bytes > limits.MAX_ENCODED_BYTES:
        raise ProtocolError(f"CHUNK: encoding {frame.encoding} of {plain_bytes} bytes")


def _encode_fin(frame: Fin) -> bytes:
    return _ROOM.pack(frame.room, frame.attempt) + pack_counts(frame.totals)


def _decode_fin(reader: Reader) -> Fin:
    room, attempt = reader.take(_ROOM)
    return Fin(room, attempt, reader.counts(limits.MAX_GROUPS))


def _encode_ack(frame: Ack) -> bytes:
    return _ROOM.pack(frame.room, frame.attempt) + pack_counts(frame.chunks)


def _decode_ack(reader: Reader) -> Ack:
    room, attempt = reader.take(_ROOM)
    chunks = reader.counts(limits.MAX_ACK_CHUNKS)
    if not chunks:
        raise ProtocolError("ACK: no chunks")
    return Ack(room, attempt, chunks)


def _encode_room(frame: Done | Aborted) -> bytes:
    return _ROOM.pack(frame.room, frame.attempt)


def _decode_done(reader: Reader) -> Done:
    return Done(*reader.take(_ROOM))


def _decode_aborted(reader: Reader) -> Aborted:
    return Aborted(*reader.take(_ROOM))


def _encode_abort(frame: Abort) -> bytes:
    return _ROOM.pack(frame.room, frame.attempt) + _pack_reason(frame.reason, frame.text)


def _decode_abort(reader: Reader) -> Abort:
    room, attempt = reader.take(_ROOM)
    return Abort(room, attempt, *_read_reason(reader))


def _encode_nonce(frame: Ping | Pong) -> bytes:
    return _U64.pack(frame.nonce)


def _decode_ping(reader: Reader) -> Ping:
    return Ping(*reader.take(_U64))


def _decode_pong(reader: Reader) -> Pong:
    return Pong(*reader.take(_U64))


HELLO_KIND = 1

# type number, encoder and decoder of each frame
_ENCODERS: dict[type, tuple[int, Callable[..., bytes]]] = {
    Hello: (HELLO_KIND, _encode_hello),
    Welcome: (2, _encode_welcome),
    Refuse: (3, _encode_refuse),
    Open: (4, _encode_open),
    Chunk: (5, _encode_chunk),
    Fin: (6, _encode_fin),
    Ack: (7, _encode_ack),
    Done: (8, _encode_room),
    Abort: (9, _encode_abort),
    Aborted: (10, _encode_room),
    Ping: (11, _encode_nonce),
    Pong: (12, _encode_nonce),
}
_DECODERS: dict[int, Callable[[Reader], Frame]] = {
    HELLO_KIND: _decode_hello,
    2: _decode_welcome,
    3: _decode_refuse,
    4: _decode_open,
    5: _decode_chunk,
    6: _decode_fin,
    7: _decode_ack,
    8: _decode_done,
    9: _decode_abort,
    10: _decode_aborted,
    11: _decode_ping,
    12: _decode_pong,
}
