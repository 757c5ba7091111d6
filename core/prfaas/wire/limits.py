"""Limits of the wire format; a frame outside them is malformed and closes its lane."""

VERSION = 2
MAGIC = b"PF"
HEADER_BYTES = 8

MAX_BODY_BYTES = 8 << 10
"""Body bytes of any frame but HELLO."""
MAX_HELLO_BYTES = 64 << 10
MAX_PAYLOAD_BYTES = 1 << 30
"""Payload bytes after one CHUNK."""
MAX_ENCODED_BYTES = 16 << 20
"""Decoded bytes of a CHUNK with an encoding: it cannot be decoded before all of it is there."""

DIGEST_BYTES = 32
MAX_GROUPS = 256
MAX_ENTRIES = 8192
"""Entries of all groups of a layout together."""
MAX_NAME_BYTES = 64
MAX_NODE_ID_BYTES = 256
MAX_REASON_BYTES = 64
MAX_TEXT_BYTES = 1024
MAX_ACK_CHUNKS = 1024
MAX_LANES = 64
MAX_AUTH_BYTES = 64
MAX_CAPABILITY_BYTES = 64

U16_MAX = (1 << 16) - 1
U32_MAX = (1 << 32) - 1
U64_MAX = (1 << 64) - 1
