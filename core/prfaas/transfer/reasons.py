"""Why a room or a peer failed, in one word."""

import re
from collections import Counter
from enum import StrEnum

from prfaas.errors import ProtocolError


class Reason(StrEnum):
    """The words that transfer itself uses; callers of `abort()` may bring their own."""

    ABORTED = "aborted"
    AUTH_FAILED = "auth_failed"
    BAD_ITEMS = "bad_items"
    CAPABILITY_EXPIRED = "capability_expired"
    CAPABILITY_INVALID = "capability_invalid"
    CLOSED = "closed"
    CONNECT_FAILED = "connect_failed"
    COUNT_MISMATCH = "count_mismatch"
    DEADLINE = "deadline"
    DIGEST_MISMATCH = "digest_mismatch"
    DISCONNECTED = "disconnected"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    LANES_LOST = "lanes_lost"
    LAYOUT_MISMATCH = "layout_mismatch"
    PROTOCOL_ERROR = "protocol_error"
    QUEUE_FULL = "queue_full"
    ROOM_CONCLUDED = "room_concluded"
    ROOM_EXISTS = "room_exists"
    SESSION_CHANGED = "session_changed"
    SUPERSEDED = "superseded"
    TOO_MANY_LANES = "too_many_lanes"
    TOO_MANY_PEERS = "too_many_peers"
    TOO_MANY_ROOMS = "too_many_rooms"
    UNKNOWN_ROOM = "unknown_room"
    VERSION_MISMATCH = "version_mismatch"


OTHER = "other"
_OURS = frozenset(map(str, Reason))
_MAX_WORDS = 64
_MAX_TEXT_CHARS = 256  # at most 1024 bytes of UTF-8


def reason_word(reason: str) -> str:
    """Return `reason` as a word that the wire can carry.

    >>> reason_word("Client went away")
    'client_went_away'
    """
    word = re.sub(r"[^a-z0-9_]+", "_", str(reason).lower())[:64]
    return word or Reason.ABORTED.value


def reason_text(detail: str) -> str:
    """Return `detail` as one printable line, cut to what the wire can carry.

    >>> reason_text("no\x1b[2J\\nway")
    'no?[2J?way'
    """
    text = detail[:_MAX_TEXT_CHARS].encode(errors="replace").decode()
    return "".join(char if char.isprintable() else "?" for char in text)


def check_node_id(node_id: str) -> None:
    """Raises: ProtocolError for a name that does not print as it is: it gets into logs."""
    if not node_id.isprintable():
        raise ProtocolError(f"node id {node_id!r}: allowed are printable characters")


def count_reason(counter: Counter[str], word: str) -> None:
    """Count a word; beyond 64 different ones, words that are not ours count as `OTHER`.

    Peers choose words, and each would be memory here and a time series elsewhere.
    """
    is_known = word in counter or word in _OURS or len(counter) < _MAX_WORDS
    counter[word if is_known else OTHER] += 1
