"""The metadata section at the start of an entry, and the digests of items.

head (64 bytes): oid, group, item_bytes, count, first, key of the page before the first
keys (16 bytes each) | digests (8 bytes each) | padding | items
"""

import struct
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from prfaas.blocks.block_layout import DIGEST_BYTES, HEAD_BYTES, KEY_BYTES, MAX_ITEMS, ItemLayout
from prfaas.blocks.entry import Entry, Run, State, is_run
from prfaas_pool.arena import Arena

_HEAD = struct.Struct("<Q16sIIQ16s")
GROUP_NAME_BYTES = 16
assert _HEAD.size <= HEAD_BYTES


@dataclass(frozen=True, slots=True)
class EntryForm:
    """An entry's metadata; `parent_key` is empty at the start of a chain."""

    oid: int
    group: str
    item_bytes: int
    first: int
    keys: bytes
    digests: bytes
    parent_key: bytes

    @property
    def count(self) -> int:
        """How many items the entry has."""
        return len(self.keys) // KEY_BYTES

    def encode(self) -> bytes:
        """Return the section's bytes, without padding."""
        group = self.group.encode()
        head = _HEAD.pack(self.oid, group, self.item_bytes, self.count, self.first, self.parent_key)
        return head.ljust(HEAD_BYTES, b"\0") + self.keys + self.digests

    def entry(self, blocks: tuple[int, ...]) -> Entry:
        """Return the entry for the index."""
        kind = Run if is_run(self.group) else State
        return kind(self.oid, self.group, self.first, self.keys, self.item_bytes, blocks)


def read_form(arena: Arena, blocks: tuple[int, ...]) -> tuple[EntryForm, int] | None:
    """Return the metadata of the entry in these blocks and its digest; None where it is none."""
    head = arena.read(blocks[:1], 0, HEAD_BYTES).tobytes()
    oid, group, item_bytes, count, first, parent_key = _HEAD.unpack(head[: _HEAD.size])
    if not (1 <= count <= MAX_ITEMS and item_bytes):
        return None
    size = HEAD_BYTES + count * (KEY_BYTES + DIGEST_BYTES)
    layout = ItemLayout(item_bytes, arena.block_bytes)
    if size > arena.block_bytes or layout.blocks(count) != len(blocks):
        return None
    raw = arena.read(blocks[:1], 0, size).tobytes()
    keys_end = HEAD_BYTES + count * KEY_BYTES
    form = EntryForm(
        oid,
        group.rstrip(b"\0").decode("ascii", errors="replace"),
        item_bytes,
        first,
        raw[HEAD_BYTES:keys_end],
        raw[keys_end:],
        parent_key if first else b"",
    )
    return form, xxhash.xxh3_64_intdigest(raw)


def item_digest(data: NDArray[np.uint8], key: bytes) -> bytes:
    """Return the digest of an item under its key: bytes of another page have another digest."""
    seed = int.from_bytes(key[:8], "little")
    return xxhash.xxh3_64_digest(data.data, seed=seed)
