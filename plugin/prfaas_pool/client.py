"""A process's access to its host's prefix pool."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas.blocks.block_layout import DIGEST_BYTES, KEY_BYTES, KV, ItemLayout
from prfaas.errors import PrfaasError
from prfaas_pool.connection import Connection
from prfaas_pool.entry_form import item_digest, read_form
from prfaas_pool.message import Message

log = logging.getLogger("prfaas.pool")

#: How long the service keeps what we read or write; copying takes milliseconds.
HOLD_S = 30.0
_WARN_EVERY_S = 60.0

Item = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PoolMatch:
    """What is stored of a chain, as `prfaas.blocks.prefix_pool.Match`."""

    kv_pages: int = 0
    usable: tuple[int, ...] = ()
    boundaries: Mapping[str, int] | None = None


@dataclass(slots=True)
class ClientCounts:
    """What a client did since it was made; `damaged` items had another digest than they should."""

    stored_items: int = 0
    stored_bytes: int = 0
    loaded_items: int = 0
    loaded_bytes: int = 0
    damaged: int = 0
    failures: int = 0


class PoolClient:
    """Stores items in the pool and loads them, from any thread; see `docs/prefix-pool.md`.

    Without a service everything is a miss: nothing raises, nothing takes much longer than the
    connection's timeout, and a second later it is tried again.
    """

    def __init__(self, socket_path: str | Path) -> None:
        self.counts = ClientCounts()
        self._connection = Connection(str(socket_path))
        self._warned_at_s = float("-inf")

    def close(self) -> None:
        """End the connection; leases and reservations end with it."""
        self._connection.close()

    def match(self, chain: bytes, trailing: Mapping[str, int], *, start: int = 0) -> PoolMatch:
        """Return what is stored of a chain for a model that needs these state groups.

        `trailing` says for each how many of the last pages need its states, as far as these are not
        before `start`: the caller has those.
        """
        answer = self._ask({"op": "match", "trailing": dict(trailing), "start": start}, chain)
        if answer is None:
            return PoolMatch()
        fields, blob = answer
        usable = tuple(np.frombuffer(blob, dtype="<u4").tolist())
        return PoolMatch(fields["kv_pages"], usable, fields["boundaries"])

    def store(
        self, chain: bytes, first: int, *, group: str, item_bytes: int, item: Callable[[int], Item]
    ) -> int:
        """Store the items of pages `first` to the end; return how many are stored, from `first` on.

        `item(position)` gives the bytes of a page's item, and is not asked for what is stored.
        States are stored all or none; they match once the KV of their last page is stored.
        """
        question = {"op": "reserve", "group": group, "first": first, "item_bytes": item_bytes}
        answer = self._ask(question | {"ttl_s": HOLD_S}, chain)
        if answer is None:
            return 0
        reserved, _ = answer
        if not reserved["id"]:
            return self._stored(reserved, chain, first, group)
        digests = self._write(chain, reserved["entries"], item_bytes, item)
        answer = self._ask({"op": "commit", "id": reserved["id"]}, digests)
        if answer is None or answer[0].get("over"):
            return 0
        count = len(digests) // DIGEST_BYTES
        self.counts.stored_items += count
        self.counts.stored_bytes += count * item_bytes
        return self._stored(answer[0], chain, first, group)

    def load(
        self,
        chain: bytes,
        first: int,
        *,
        group: str,
        item_bytes: int,
        take: Callable[[int, Item], None],
    ) -> int:
        """Load the items of pages `first` to the end; return how many were there, from `first` on.

        `take(position, bytes)` gets each: a copy, that has the digest it was stored with.
        """
        answer = self._ask({"op": "read", "group": group, "first": first, "ttl_s": HOLD_S}, chain)
        if answer is None or not answer[0]["id"]:
            return 0
        position = first
        for oid, blocks, offset, count in answer[0]["pieces"]:
            items = self._read(oid, tuple(blocks), group, item_bytes)
            end = position + count
            while position < end:
                key = chain[position * KEY_BYTES : (position + 1) * KEY_BYTES]
                data = items(offset, key) if items else None
                if data is None:
                    break
                take(position, data)
                position, offset = position + 1, offset + 1
            if position < end:
                self.counts.damaged += 1
                self._ask({"op": "drop", "group": group, "first": position}, chain)
                break
        self._ask({"op": "release", "id": answer[0]["id"]})
        self.counts.loaded_items += position - first
        self.counts.loaded_bytes += (position - first) * item_bytes
        return position - first

    def stats(self) -> dict[str, Any] | None:
        """Return the service's figures; None where it does not answer."""
        answer = self._ask({"op": "stats"})
        return answer[0] if answer else None

    def _stored(self, answer: dict[str, Any], chain: bytes, first: int, group: str) -> int:
        count = len(chain) // KEY_BYTES - first
        if group == KV:
            pages = int(answer.get("pages", answer.get("present", 0)))
            return min(count, max(0, pages - first))
        return 0 if answer["refused"] else count

    def _write(
        self, chain: bytes, entries: list[Any], item_bytes: int, item: Callable[[int], Item]
    ) -> bytes:
        """Copy items into reserved blocks and return their digests."""
        arena = self._connection.arena
        assert arena is not None
        layout = ItemLayout(item_bytes, arena.block_bytes)
        digests = []
        for first, count, blocks in entries:
            offset = layout.payload_offset(count)
            for position in range(first, first + count):
                data = item(position)
                key = chain[position * KEY_BYTES : (position + 1) * KEY_BYTES]
                digests.append(item_digest(data, key))
                arena.write(tuple(blocks), offset, data)
                offset += item_bytes
        return b"".join(digests)

    def _read(
        self, oid: int, blocks: tuple[int, ...], group: str, item_bytes: int
    ) -> Callable[[int, bytes], Item | None] | None:
        """Return what reads one item of an entry; None where the entry is not what it should be."""
        arena = self._connection.arena
        assert arena is not None
        read = read_form(arena, blocks)
        if read is None:
            return None
        form, _ = read
        if (form.oid, form.group, form.item_bytes) != (oid, group, item_bytes):
            return None
        start = ItemLayout(item_bytes, arena.block_bytes).payload_offset(form.count)

        def item(offset: int, key: bytes) -> Item | None:
            data = arena.read(blocks, start + offset * item_bytes, item_bytes)
            expected = form.digests[offset * DIGEST_BYTES : (offset + 1) * DIGEST_BYTES]
            return data if item_digest(data, key) == expected else None

        return item

    def _ask(self, fields: dict[str, Any], blob: bytes = b"") -> Message | None:
        try:
            return self._connection.ask(fields, blob)
        except PrfaasError as error:
            self.counts.failures += 1
            if time.monotonic() - self._warned_at_s > _WARN_EVERY_S:
                self._warned_at_s = time.monotonic()
                log.warning("%s", error)
            return None
