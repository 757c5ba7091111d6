"""Between Python values and the raw messages of etcd."""

from typing import Any

from prfaas_coord.events import KeyValue


def prefix_end(prefix: str) -> bytes:
    """Return the first key after all keys that start with `prefix`.

    >>> prefix_end("/a/")
    b'/a0'
    """
    data = bytearray(prefix.encode())
    while data and data[-1] == 0xFF:
        data.pop()
    if not data:
        return b"\0"
    data[-1] += 1
    return bytes(data)


def key_value(raw: Any) -> KeyValue:
    """Return a raw `mvccpb.KeyValue` as our own type."""
    key = raw.key.decode(errors="replace")
    return KeyValue(key, bytes(raw.value), int(raw.mod_revision), int(raw.lease))
