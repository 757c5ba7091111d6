"""What clients and the pool service say to each other: a JSON object and some bytes per message.

A message is two lengths (u32, little-endian), that many bytes of JSON, that many bytes of keys or
digests. A client asks, the service answers; there is one answer per question, in order.
"""

import json
import struct
from typing import Any

from prfaas.errors import ProtocolError

VERSION = 1
LENGTHS = struct.Struct("<II")
MAX_JSON_BYTES = 8 << 20
MAX_BLOB_BYTES = 16 << 20
"""A chain of a million pages."""

Message = tuple[dict[str, Any], bytes]


def encode(fields: dict[str, Any], blob: bytes = b"") -> bytes:
    """Return a message's bytes.

    Raises:
        ProtocolError: it is larger than a message may be.
    """
    text = json.dumps(fields, separators=(",", ":")).encode()
    check_lengths(len(text), len(blob))
    return LENGTHS.pack(len(text), len(blob)) + text + blob


def decode_fields(text: bytes) -> dict[str, Any]:
    """Return the JSON object of a message.

    Raises:
        ProtocolError: it is not one.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"pool message: {error}") from None
    if not isinstance(fields, dict):
        raise ProtocolError("pool message: not a JSON object")
    return fields


def check_lengths(json_bytes: int, blob_bytes: int) -> None:
    """Refuse what is too long before memory is taken for it.

    Raises:
        ProtocolError: it is too long.
    """
    if json_bytes > MAX_JSON_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise ProtocolError(f"pool message of {json_bytes} + {blob_bytes} bytes: too long")
