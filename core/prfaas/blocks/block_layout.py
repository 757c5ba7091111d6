"""How items of different sizes share a pool of equal blocks.

An item is what an engine stores under one page key: the full-attention KV of one page, the state
of a request at one length, one page of a sliding window. An entry is some items of consecutive
pages, a metadata section before them, and as many blocks as that takes.
"""

from dataclasses import dataclass

KV = "kv"
"""The group of full-attention KV, which may match in part; all other groups hold states."""
KEY_BYTES = 16
"""Bytes of a page key."""
DIGEST_BYTES = 8
"""Bytes of an item's digest."""
HEAD_BYTES = 64
"""Bytes of an entry's metadata before its keys and digests."""
MAX_ITEMS = 128
"""Items that one entry has at most, so that little is read to use one of them."""
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class ItemLayout:
    """Items of `item_bytes` in blocks of `block_bytes`.

    >>> ItemLayout(512, block_bytes=65536).max_items
    122
    >>> ItemLayout(1 << 20, block_bytes=65536).blocks(1)
    17
    """

    item_bytes: int
    block_bytes: int

    @property
    def max_items(self) -> int:
        """How many items an entry may have: what fits into one block, or 1."""
        per_item = self.item_bytes + KEY_BYTES + DIGEST_BYTES
        fitting = (self.block_bytes - HEAD_BYTES - _ALIGNMENT) // per_item
        return max(1, min(MAX_ITEMS, fitting))

    def payload_offset(self, count: int) -> int:
        """Return where the first of `count` items begins, in bytes from the entry's start."""
        end = HEAD_BYTES + count * (KEY_BYTES + DIGEST_BYTES)
        return -(-end // _ALIGNMENT) * _ALIGNMENT

    def blocks(self, count: int) -> int:
        """Return how many blocks an entry of `count` items takes."""
        return -(-(self.payload_offset(count) + count * self.item_bytes) // self.block_bytes)
