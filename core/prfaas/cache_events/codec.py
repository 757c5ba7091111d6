"""Batches as lines of JSON. What a peer sends is checked whole; limits hold for every line.

`{"session": "5f..", "seq": 7, "events": [{"type": "StateStored", "hashes": [-12]}]}`
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prfaas.cache_events.events import (
    Batch,
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheShape,
    Cleared,
    StateRemoved,
    StateStored,
    WindowRemoved,
    WindowStored,
)
from prfaas.errors import ProtocolError

VERSION = 1
MAX_LINE_BYTES = 4 << 20
_NAMED: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (BlockRemoved, StateStored, StateRemoved, WindowStored, WindowRemoved)
}
_HASH_LIMIT = 1 << 63
_TOKEN_LIMIT = 1 << 32


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last batch a reader has; an empty `session`: it has none."""

    session: str = ""
    seq: int = 0


def encode_batch(batch: Batch) -> bytes:
    """Return a batch as a line."""
    document: dict[str, Any] = {"session": batch.session, "seq": batch.seq}
    if batch.snapshot:
        document |= {"snapshot": True, "more": batch.more}
    document["events"] = [_event_values(event) for event in batch.events]
    return _line(document)


def encode_shape(shape: CacheShape) -> bytes:
    """Return the line that a publisher begins with."""
    return _line({"version": VERSION, **asdict(shape)})


def encode_cursor(cursor: Cursor) -> bytes:
    """Return the line that a reader begins with."""
    return _line(asdict(cursor))


def decode_batch(line: bytes) -> Batch:
    """Return the batch in a line.

    Raises:
        ProtocolError: it is none.
    """
    document = _object(line)
    events = document.get("events")
    if not isinstance(events, list):
        raise ProtocolError("cache events: a batch without a list of events")
    snapshot, more = document.get("snapshot", False), document.get("more", False)
    if type(snapshot) is not bool or type(more) is not bool:
        raise ProtocolError("cache events: snapshot and more are true or false")
    cursor = _cursor(document)
    return Batch(
        session=cursor.session,
        seq=cursor.seq,
        events=tuple(_event(event) for event in events),
        snapshot=snapshot,
        more=more,
    )


def decode_shape(line: bytes) -> CacheShape:
    """Return what kind of cache a publisher has.

    Raises:
        ProtocolError: it does not say, or speaks another version.
    """
    document = _object(line)
    if document.get("version") != VERSION:
        raise ProtocolError(f"cache events of version {document.get('version')!r}, not {VERSION}")
    stateful = document.get("stateful")
    if type(stateful) is not bool:
        raise ProtocolError("cache events: stateful is true or false")
    return CacheShape(
        block_tokens=_integer(document.get("block_tokens"), 1, 1 << 20),
        stateful=stateful,
        window_tokens=_integer(document.get("window_tokens"), 0, 1 << 30),
    )


def decode_cursor(line: bytes) -> Cursor:
    """Return where a reader wants to go on.

    Raises:
        ProtocolError: it does not say.
    """
    return _cursor(_object(line))


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"cache events: a line of more than {MAX_LINE_BYTES} bytes")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("cache events: a line that is not JSON") from None
    if not isinstance(document, dict):
        raise ProtocolError("cache events: a line that is not a JSON object")
    return document


def _cursor(document: Mapping[str, Any]) -> Cursor:
    session = document.get("session")
    if not isinstance(session, str) or len(session) > 64:
        raise ProtocolError("cache events: session is not a short text")
    return Cursor(session, _integer(document.get("seq"), 0, _HASH_LIMIT))


def _event_values(event: CacheEvent) -> dict[str, Any]:
    return {"type": type(event).__name__, **asdict(event)}


def _event(raw: Any) -> CacheEvent:
    if not isinstance(raw, dict):
        raise ProtocolError("cache events: an event that is not a JSON object")
    kind = raw.get("type")
    if kind == "Cleared":
        return Cleared()
    if kind == "BlockStored":
        return _block_stored(raw)
    if not isinstance(kind, str) or kind not in _NAMED:
        raise ProtocolError(f"cache events: unknown event {str(kind)[:40]!r}")
    event: CacheEvent = _NAMED[kind](_integers(raw.get("hashes"), -_HASH_LIMIT, _HASH_LIMIT))
    return event


def _block_stored(raw: dict[str, Any]) -> BlockStored:
    parent, salt = raw.get("parent"), raw.get("salt", "")
    if not isinstance(salt, str):
        raise ProtocolError("cache events: salt is not a text")
    hashes = _integers(raw.get("hashes"), -_HASH_LIMIT, _HASH_LIMIT)
    tokens = _integers(raw.get("tokens"), 0, _TOKEN_LIMIT)
    if not hashes or not tokens or len(tokens) % len(hashes):
        raise ProtocolError(f"cache events: {len(tokens)} tokens in {len(hashes)} blocks")
    if parent is not None:
        parent = _integer(parent, -_HASH_LIMIT, _HASH_LIMIT)
    return BlockStored(hashes, tokens, parent, salt)


def _integers(raw: Any, low: int, limit: int) -> tuple[int, ...]:
    if not isinstance(raw, list):
        raise ProtocolError("cache events: expected a list of integers")
    return tuple(_integer(item, low, limit) for item in raw)


def _integer(raw: Any, low: int, limit: int) -> int:
    if type(raw) is not int or not low <= raw < limit:
        raise ProtocolError("cache events: expected an integer of 64 bits, in its range")
    return raw
