"""What a node tells gateways of its prefix cache: hashes of blocks and of states, and no token.

A block is named by `HashedPrompt`'s rolling hash of its 64 tokens and all before them; a state by
the block it follows, how many tokens it stands for, and the hash of those after that block. Lines
of JSON, checked whole:

`{"session": "5f..", "seq": 7, "kept": [17], "states": [[17, 70, 4]], ...}`
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from prfaas.errors import ProtocolError

MAX_FEED_LINE_BYTES = 4 << 20
FEED_VERSION = 1
_HASH_LIMIT = 1 << 64
_TOKEN_LIMIT = 1 << 31

StateName = tuple[int, int, int]
"""Block hash, tokens, hash of the tokens after the block."""


@dataclass(frozen=True, slots=True)
class FeedShape:
    """What kind of cache it is; as `CacheShape`."""

    stateful: bool = False
    window_tokens: int = 0
    page_tokens: int = 1


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Changes that happened together, in this order: cleared, dropped, gone, kept, states.

    `dropped` and `gone` are blocks and states that are there no more. `windowless` and `windowed`
    are blocks that lost or have again their sliding-window part. A snapshot begins with `cleared`.
    """

    session: str
    seq: int
    cleared: bool = False
    dropped: tuple[int, ...] = ()
    gone: tuple[StateName, ...] = ()
    kept: tuple[int, ...] = ()
    states: tuple[StateName, ...] = ()
    windowless: tuple[int, ...] = ()
    windowed: tuple[int, ...] = ()
    more: bool = False

    @property
    def size(self) -> int:
        """How many names it has."""
        blocks = (self.dropped, self.kept, self.windowless, self.windowed)
        return 1 + sum(map(len, blocks)) + len(self.gone) + len(self.states)


def encode_feed_shape(shape: FeedShape) -> bytes:
    """Return the line that a feed begins with."""
    return _line({"version": FEED_VERSION, **asdict(shape)})


def decode_feed_shape(line: bytes) -> FeedShape:
    """Return what kind of cache a node has.

    Raises:
        ProtocolError: it does not say, or speaks another version.
    """
    raw = _object(line)
    if raw.get("version") != FEED_VERSION:
        raise ProtocolError(f"cache feed of version {raw.get('version')!r}, not {FEED_VERSION}")
    return FeedShape(
        stateful=_flag(raw, "stateful"),
        window_tokens=_integer(raw.get("window_tokens"), _TOKEN_LIMIT),
        page_tokens=max(1, _integer(raw.get("page_tokens"), _TOKEN_LIMIT)),
    )


def encode_feed_batch(batch: FeedBatch) -> bytes:
    """Return a batch as a line; what is empty is left out."""
    values = ((item.name, getattr(batch, item.name)) for item in fields(batch))
    return _line({name: value for name, value in values if value})


def decode_feed_batch(line: bytes) -> FeedBatch:
    """Return the batch in a line.

    Raises:
        ProtocolError: it is none.
    """
    raw = _object(line)
    session = raw.get("session")
    if not isinstance(session, str) or len(session) > 64:
        raise ProtocolError("cache feed: session is not a short text")
    return FeedBatch(
        session=session,
        seq=_integer(raw.get("seq", 0), 1 << 62),
        cleared=_flag(raw, "cleared"),
        dropped=_blocks(raw, "dropped"),
        gone=_states(raw, "gone"),
        kept=_blocks(raw, "kept"),
        states=_states(raw, "states"),
        windowless=_blocks(raw, "windowless"),
        windowed=_blocks(raw, "windowed"),
        more=_flag(raw, "more"),
    )


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_FEED_LINE_BYTES:
        raise ProtocolError(f"cache feed: a line of more than {MAX_FEED_LINE_BYTES} bytes")
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("cache feed: a line that is not JSON") from None
    if not isinstance(raw, dict):
        raise ProtocolError("cache feed: a line that is not a JSON object")
    return raw


def _flag(raw: dict[str, Any], name: str) -> bool:
    value = raw.get(name, False)
    if type(value) is not bool:
        raise ProtocolError(f"cache feed: {name} is true or false")
    return value


def _blocks(raw: dict[str, Any], name: str) -> tuple[int, ...]:
    return tuple(_integer(item, _HASH_LIMIT) for item in _list(raw.get(name, [])))


def _states(raw: dict[str, Any], name: str) -> tuple[StateName, ...]:
    found = []
    for item in _list(raw.get(name, [])):
        block, tokens, tail = (*_list(item), None, None, None)[:3]
        state = _integer(block, _HASH_LIMIT), _integer(tokens, _TOKEN_LIMIT)
        found.append((*state, _integer(tail, _HASH_LIMIT)))
    return tuple(found)


def _list(raw: Any) -> list[Any]:
    if not isinstance(raw, list):
        raise ProtocolError("cache feed: expected a list")
    return raw


def _integer(raw: Any, limit: int) -> int:
    if type(raw) is not int or not 0 <= raw < limit:
        raise ProtocolError(f"cache feed: expected an integer of 0 to {limit - 1}")
    return raw
