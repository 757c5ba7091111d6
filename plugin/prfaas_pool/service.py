"""The pool service: the one owner of an arena and its index; answers clients' questions."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import xxhash

from prfaas.blocks.block_layout import DIGEST_BYTES, KEY_BYTES
from prfaas.blocks.entry import Entry
from prfaas.blocks.free_list import Category
from prfaas.blocks.prefix_pool import PrefixPool
from prfaas.errors import ProtocolError
from prfaas_pool.arena import Arena
from prfaas_pool.config import PoolConfig
from prfaas_pool.entry_form import GROUP_NAME_BYTES, EntryForm, read_form
from prfaas_pool.message import VERSION, Message
from prfaas_pool.space import Space

log = logging.getLogger("prfaas.pool")

MAX_HOLD_S = 600.0
"""What a client may ask for at most: how long it may read or write."""
WAITING_S = 60.0
"""How long a state waits for the KV it hangs on."""
MAX_ITEM_BYTES = 1 << 30
MAX_SPACES = 64
"""Workers whose layouts are known: of models that are gone, the oldest are forgotten."""


class PoolService:
    """Handles messages, one at a time. `now_s` is a monotonic clock.

    Raises:
        PreflightError, StateError: as `Arena.create`.
    """

    def __init__(self, config: PoolConfig, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._path = str(config.arena.absolute())
        self.arena = Arena.create(
            config.arena, block_bytes=config.block_bytes, num_blocks=config.num_blocks
        )
        quotas = {Category.TRANSFER: int(config.num_blocks * config.transfer_share)}
        self.pool = PrefixPool(config.num_blocks, config.block_bytes, quotas)
        #: Of entries not recorded yet: digests, and the key of the page before the first.
        self._unrecorded: dict[Entry, tuple[bytes, bytes]] = {}
        self._spaces: dict[tuple[str, str], Space] = {}
        self.counts = {"restored": 0, "lost": 0, "hit_items": 0, "stored_items": 0}
        self._restore()
        self._handlers: dict[str, Callable[[int, dict[str, Any], bytes], Message]] = {
            "hello": self._hello,
            "match": self._match,
            "reserve": self._reserve,
            "reserve_blocks": self._reserve_blocks,
            "commit": self._commit,
            "read": self._read,
            "release": self._release,
            "drop": self._drop,
            "stats": self._stats,
            "describe": self._describe,
            "spaces": self._list_spaces,
        }

    def close(self) -> None:
        """Unmap the arena; what is in it stays for the next service."""
        self.arena.close()

    def handle(self, owner: int, fields: dict[str, Any], blob: bytes) -> Message:
        """Answer a client's message.

        Raises:
            ProtocolError: it is not one that a client may send; its connection is to be closed.
        """
        handler = self._handlers.get(str(fields.get("op")))
        if handler is None:
            raise ProtocolError(f"pool message: op {fields.get('op')!r} is unknown")
        self.expire()
        try:
            return handler(owner, fields, blob)
        finally:
            self._forget_freed()

    def expire(self) -> None:
        """End what is over; call it now and then also when nobody asks."""
        self.pool.expire(self._now_s())
        self._forget_freed()

    def end_client(self, owner: int) -> None:
        """End all that a client held: it is gone."""
        self.pool.release_owner(owner)
        self._forget_freed()

    def _hello(self, _owner: int, fields: dict[str, Any], _blob: bytes) -> Message:
        if fields.get("version") != VERSION:
            raise ProtocolError(f"pool message: version {fields.get('version')!r}, not {VERSION}")
        return {
            "path": self._path,
            "arena": self.arena.arena_id.hex(),
            "block_bytes": self.arena.block_bytes,
            "num_blocks": self.arena.num_blocks,
        }, b""

    def _match(self, _owner: int, fields: dict[str, Any], blob: bytes) -> Message:
        trailing = fields.get("trailing", {})
        if not isinstance(trailing, dict) or len(trailing) > 16:
            raise ProtocolError("pool message: trailing must be an object of at most 16 groups")
        needed = {_group(name): _whole(pages, 1, 1 << 24) for name, pages in trailing.items()}
        start = _whole(fields.get("start", 0), 0, 1 << 24)
        match = self.pool.match(_chain(blob), needed, start=start)
        lengths = np.asarray(match.usable, dtype="<u4").tobytes()
        return {"kv_pages": match.kv_pages, "boundaries": match.boundaries}, lengths

    def _reserve(self, owner: int, fields: dict[str, Any], blob: bytes) -> Message:
        chain = _chain(blob)
        first = _whole(fields.get("first"), 0, max(0, len(chain) // KEY_BYTES - 1))
        number, reservation = self.pool.reserve(
            chain,
            first,
            group=_group(fields.get("group")),
            item_bytes=_whole(fields.get("item_bytes"), 1, MAX_ITEM_BYTES),
            owner=owner,
            expires_s=self._expiry(fields),
            category=Category.TRANSFER if fields.get("moved") is True else Category.PREFIX,
        )
        entries = [[entry.first, entry.count, list(entry.blocks)] for entry in reservation.entries]
        return {
            "id": number,
            "present": reservation.present,
            "entries": entries,
            "refused": int(reservation.refused),
        }, b""

    def _reserve_blocks(self, owner: int, fields: dict[str, Any], _blob: bytes) -> Message:
        count = _whole(fields.get("count"), 1, self.arena.num_blocks)
        number, hold = self.pool.reserve_blocks(count, owner=owner, expires_s=self._expiry(fields))
        return {"id": number, "blocks": list(hold.blocks)}, b""

    def _commit(self, owner: int, fields: dict[str, Any], blob: bytes) -> Message:
        number = _whole(fields.get("id"), 1, 1 << 62)
        reservation = self.pool.reservation(number, owner=owner)
        if reservation is None:
            return {"pages": 0, "refused": 0, "over": True}, b""
        if len(blob) != DIGEST_BYTES * sum(entry.count for entry in reservation.entries):
            raise ProtocolError("pool message: not one digest for each item")
        at = 0
        for entry in reservation.entries:
            size = DIGEST_BYTES * entry.count
            before = reservation.chain[: entry.first * KEY_BYTES][-KEY_BYTES:]
            self._unrecorded[entry] = blob[at : at + size], before
            at += size
        done = self.pool.commit(number, owner=owner, expires_s=self._now_s() + WAITING_S)
        assert done is not None
        for entry in done.stored:
            self._record(entry)
        self.counts["stored_items"] += sum(entry.count for entry in done.stored)
        pages = self.pool.match(reservation.chain, {}).kv_pages
        return {"pages": pages, "refused": done.refused}, b""

    def _read(self, owner: int, fields: dict[str, Any], blob: bytes) -> Message:
        number, pieces = self.pool.read(
            _chain(blob),
            _whole(fields.get("first"), 0, 1 << 24),
            group=_group(fields.get("group")),
            owner=owner,
            expires_s=self._expiry(fields),
        )
        self.counts["hit_items"] += sum(piece.count for piece in pieces)
        listed = [
            [item.entry.oid, list(item.entry.blocks), item.offset, item.count] for item in pieces
        ]
        return {"id": number, "pieces": listed}, b""

    def _release(self, owner: int, fields: dict[str, Any], _blob: bytes) -> Message:
        number = _whole(fields.get("id"), 1, 1 << 62)
        return {"released": self.pool.release(number, owner=owner)}, b""

    def _drop(self, _owner: int, fields: dict[str, Any], blob: bytes) -> Message:
        first = _whole(fields.get("first"), 0, 1 << 24)
        gone = self.pool.drop(_chain(blob), first, group=_group(fields.get("group")))
        for entry in gone:
            self.arena.clear(entry.blocks)
        if gone:
            log.warning("dropped %d entries: an item did not match its digest", len(gone))
        return {"dropped": len(gone)}, b""

    def _describe(self, _owner: int, fields: dict[str, Any], _blob: bytes) -> Message:
        space = Space.from_json(fields.get("space"))
        self._spaces.pop((space.model, space.layout), None)
        self._spaces[space.model, space.layout] = space
        while len(self._spaces) > MAX_SPACES:
            del self._spaces[next(iter(self._spaces))]
        return {}, b""

    def _list_spaces(self, _owner: int, _fields: dict[str, Any], _blob: bytes) -> Message:
        return {"spaces": [space.to_json() for space in self._spaces.values()]}, b""

    def _stats(self, _owner: int, _fields: dict[str, Any], _blob: bytes) -> Message:
        return self.stats(), b""

    def stats(self) -> dict[str, Any]:
        """Return what is in the pool and what happened since the start, in plain numbers."""
        blocks = self.pool.blocks
        return {
            "blocks": blocks.num_blocks,
            "block_bytes": self.arena.block_bytes,
            "free_blocks": blocks.num_free,
            "prefix_blocks": blocks.used(Category.PREFIX),
            "transfer_blocks": blocks.used(Category.TRANSFER),
            "entries": self.pool.num_entries,
            "holds": self.pool.num_holds,
            **asdict(self.pool.counts),
            **self.counts,
        }

    def _expiry(self, fields: dict[str, Any]) -> float:
        ttl_s = fields.get("ttl_s")
        if not isinstance(ttl_s, int | float) or not 0 < ttl_s <= MAX_HOLD_S:
            raise ProtocolError(f"pool message: ttl_s {ttl_s!r}: above 0, up to {MAX_HOLD_S:.0f}")
        return self._now_s() + ttl_s

    def _record(self, entry: Entry) -> None:
        digests, parent_key = self._unrecorded.pop(entry)
        form = EntryForm(
            entry.oid, entry.group, entry.item_bytes, entry.first, entry.keys, digests, parent_key
        )
        raw = form.encode()
        self.arena.write(entry.blocks, 0, np.frombuffer(raw, dtype=np.uint8))
        self.arena.record(entry.oid, entry.blocks, xxhash.xxh3_64_intdigest(raw))

    def _forget_freed(self) -> None:
        for entry in self.pool.freed:
            self._unrecorded.pop(entry, None)
            if entry.oid:
                self.arena.clear(entry.blocks)
        self.pool.freed.clear()

    def _restore(self) -> None:
        found = []
        for item in self.arena.find_entries():
            read = read_form(self.arena, item.blocks)
            if read is None or read[0].oid != item.oid or read[1] != item.meta_digest:
                self.arena.clear(item.blocks)
                self.counts["lost"] += 1
                continue
            form, _ = read
            found.append((form.entry(item.blocks), form.parent_key))
        lost = self.pool.restore(found)
        for entry in lost:
            self.arena.clear(entry.blocks)
        self.counts["lost"] += len(lost)
        self.counts["restored"] = len(found) - len(lost)


def _chain(blob: bytes) -> bytes:
    if len(blob) % KEY_BYTES:
        raise ProtocolError("pool message: a chain must be keys of 16 bytes")
    return blob


def _group(name: Any) -> str:
    if not isinstance(name, str) or not name.isascii() or not 0 < len(name) <= GROUP_NAME_BYTES:
        raise ProtocolError(f"pool message: group {name!r}: 1 to {GROUP_NAME_BYTES} characters")
    return name


def _whole(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ProtocolError(f"pool message: {value!r}: allowed is {low} to {high}")
    return value
