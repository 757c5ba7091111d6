"""What gateways and the pools' hosts say to each other when a prefix is to be moved.

A gateway asks the destination's host (`FETCH_PATH`), which asks the source's host for an offer
(`OFFER_PATH`) and takes it over the lanes. A body is a JSON object on a line, then bytes: the
prompt's tokens, 4 bytes each, or a chain of page keys.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from prfaas.blocks.block_layout import KEY_BYTES
from prfaas.errors import ProtocolError

FETCH_PATH = "/prefix/fetch"
OFFER_PATH = "/prefix/offer"
MAX_BODY_BYTES = 17 << 20
"""A prompt of four million tokens, or a chain of a million pages."""
MAX_ANSWER_BYTES = 40 << 20
"""A digest for each item of a million pages in two groups, in hex."""
_MAX_LINE_BYTES = 64 << 10
_MAX_TEXT = 4096
_MAX_PAGES = 1 << 24
_MAX_BYTES = 1 << 50
_MAX_SECONDS = 1e6
TOKEN_BYTES = 4


class Outcome(StrEnum):
    """What became of a move."""

    MOVED = "moved"
    NOTHING = "nothing"
    """The source has no more than the destination."""
    UNKNOWN = "unknown"
    """No engine has told the destination's pool of the model yet."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Bring the longest prefix of a prompt that the pool behind `source` (a URL) has of it."""

    source: str
    model: str
    tokens: bytes
    cache_salt: str = ""
    extra_key: str = ""

    def encode(self) -> bytes:
        """Return the body."""
        head = asdict(self)
        del head["tokens"]
        return _encode(head, self.tokens)

    @classmethod
    def decode(cls, body: bytes) -> "FetchRequest":
        """Return what `encode` gave.

        Raises:
            ProtocolError: it is something else.
        """
        head, tokens = _decode(body)
        if not tokens or len(tokens) % TOKEN_BYTES:
            raise ProtocolError("fetch of a prefix: tokens are of 4 bytes each, one or more")
        values = {name: _text(head, name) for name in ("source", "model")}
        salts = {name: _text(head, name, default="") for name in ("cache_salt", "extra_key")}
        if not values["source"].startswith(("http://", "https://")):
            raise ProtocolError("fetch of a prefix: source is not an HTTP URL")
        return cls(tokens=tokens, **values, **salts)


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What became of it: `tokens` of the prompt can be resumed from now, `had_tokens` before."""

    outcome: Outcome
    tokens: int = 0
    had_tokens: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Any) -> "FetchAnswer":
        """Return what `to_json` gave.

        Raises:
            ProtocolError: it is something else.
        """
        try:
            outcome, detail = Outcome(raw["outcome"]), str(raw["detail"])[:_MAX_TEXT]
            seconds = float(raw["seconds"])
            tokens, had_tokens, num_bytes = (
                _whole(raw, name, 0, _MAX_BYTES) for name in ("tokens", "had_tokens", "num_bytes")
            )
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ProtocolError(f"answer to a fetch: {error}") from None
        if not 0 <= seconds <= _MAX_SECONDS:
            raise ProtocolError(f"answer to a fetch: {seconds} s")
        return cls(outcome, tokens, had_tokens, num_bytes, seconds, detail)


@dataclass(frozen=True, slots=True)
class OfferRequest:
    """Offer what lacks who has KV of `kv_pages` of a chain, and can resume from `usable_pages`."""

    room: int
    model: str
    layout: str
    kv_pages: int
    usable_pages: int
    chain: bytes

    def encode(self) -> bytes:
        """Return the body."""
        head = asdict(self)
        del head["chain"]
        return _encode(head, self.chain)

    @classmethod
    def decode(cls, body: bytes) -> "OfferRequest":
        """Return what `encode` gave.

        Raises:
            ProtocolError: it is something else.
        """
        head, chain = _decode(body)
        if not chain or len(chain) % KEY_BYTES:
            raise ProtocolError("offer of a prefix: a chain is of 16 bytes a page, one or more")
        return cls(
            room=_whole(head, "room", 1, 1 << 62),
            model=_text(head, "model"),
            layout=_text(head, "layout"),
            kv_pages=_whole(head, "kv_pages", 0, _MAX_PAGES),
            usable_pages=_whole(head, "usable_pages", 0, _MAX_PAGES),
            chain=chain,
        )


def _encode(head: Mapping[str, Any], blob: bytes) -> bytes:
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + blob


def _decode(body: bytes) -> tuple[dict[str, Any], bytes]:
    end = body.find(b"\n", 0, _MAX_LINE_BYTES)
    if end < 0:
        raise ProtocolError("move of a prefix: the first line is missing or too long")
    try:
        head = json.loads(body[:end])
    except (ValueError, RecursionError):
        raise ProtocolError("move of a prefix: the first line is not JSON") from None
    if not isinstance(head, dict):
        raise ProtocolError("move of a prefix: the first line is not a JSON object")
    return head, body[end + 1 :]


def _text(head: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    value = head.get(name, default)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ProtocolError(f"move of a prefix: {name} is not a text of up to {_MAX_TEXT}")
    return value


def _whole(head: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = head.get(name)
    if type(value) is not int or not low <= value <= high:
        raise ProtocolError(f"move of a prefix: {name} {value!r:.40}: allowed is {low} to {high}")
    return value
