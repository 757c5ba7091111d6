"""A process's access to its host's prefix pool."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prfaas.blocks.block_layout import DIGEST_BYTES, KEY_BYTES, KV, ItemLayout
from prfaas.errors import PrfaasError
from prfaas_pool.connection import Connection
from prfaas_pool.entry_form import item_digest, read_form
from prfaas_pool.message import Message
from prfaas_pool.place import Item, Leased, Place, Reserved, ReservedEntry
from prfaas_pool.space import Space

log = logging.getLogger("prfaas.pool")

#: How long the service keeps what we read or write; copying takes milliseconds.
HOLD_S = 30.0
_WARN_EVERY_S = 60.0


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
        reserved = self.reserve(chain, first, group=group, item_bytes=item_bytes)
        if reserved is None or not reserved.number:
            return reserved.stored if reserved else 0
        digests = []
        try:
            for position, place in reserved.places():
                data = item(position)
                place.write(data)
                digests.append(item_digest(data, _key(chain, position)))
        except BaseException:  # whatever it was, the blocks are not to wait for their time
            self.release(reserved.number)
            raise
        return self.commit(reserved, chain, first, b"".join(digests))

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
        leased = self.lease(chain, first, group=group, item_bytes=item_bytes)
        if leased is None:
            return 0
        for position, place in enumerate(leased.places, first):
            data = place.read()
            if item_digest(data, _key(chain, position)) != place.digest:
                leased.places[position - first :] = []
                self._report_damage(chain, position, group)
                break
            take(position, data)
        self.release(leased.number)
        self.counts.loaded_items += len(leased.places)
        self.counts.loaded_bytes += len(leased.places) * item_bytes
        return len(leased.places)

    def reserve(
        self,
        chain: bytes,
        first: int,
        *,
        group: str,
        item_bytes: int,
        moved: bool = False,
        hold_s: float = HOLD_S,
    ) -> Reserved | None:
        """Reserve blocks for items to be written by whatever means, then to be committed.

        `moved`: as blocks of a transfer, until they are committed. None: no pool.
        """
        question = {"op": "reserve", "group": group, "first": first, "item_bytes": item_bytes}
        answer = self._ask(question | {"ttl_s": hold_s, "moved": moved}, chain)
        arena = self._connection.arena
        if answer is None or arena is None:
            return None
        fields, _ = answer
        layout = ItemLayout(item_bytes, arena.block_bytes)
        entries = [
            ReservedEntry(start, count, tuple(blocks), layout.payload_offset(count))
            for start, count, blocks in fields["entries"]
        ]
        stored = self._stored(fields, chain, first, group)
        is_partial = bool(fields["refused"])
        return Reserved(fields["id"], arena, group, item_bytes, entries, stored, is_partial)

    def commit(self, reserved: Reserved, chain: bytes, first: int, digests: bytes) -> int:
        """Make what was written count; `digests` are of all reserved items, in order.

        Returns how many items are stored from page `first` on.
        """
        answer = self._ask({"op": "commit", "id": reserved.number}, digests)
        if answer is None or answer[0].get("over"):
            return 0
        count = len(digests) // DIGEST_BYTES
        self.counts.stored_items += count
        self.counts.stored_bytes += count * reserved.item_bytes
        fields = answer[0]
        fields["refused"] = fields["refused"] or reserved.is_partial
        return self._stored(fields, chain, first, reserved.group)

    def lease(
        self, chain: bytes, first: int, *, group: str, item_bytes: int, hold_s: float = HOLD_S
    ) -> Leased | None:
        """Lease the items of pages `first` to the end, as far as they are stored; None: not one.

        Whoever reads them verifies their digests.
        """
        question = {"op": "read", "group": group, "first": first, "ttl_s": hold_s}
        answer = self._ask(question, chain)
        arena = self._connection.arena
        if answer is None or not answer[0]["id"] or arena is None:
            return None
        places: list[Place] = []
        for oid, blocks, offset, count in answer[0]["pieces"]:
            found = read_form(arena, tuple(blocks))
            form = found[0] if found else None
            if form is None or (form.oid, form.group, form.item_bytes) != (oid, group, item_bytes):
                self._report_damage(chain, first + len(places), group)
                break
            start = ItemLayout(item_bytes, arena.block_bytes).payload_offset(form.count)
            for index in range(offset, offset + count):
                digest = form.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]
                at = start + index * item_bytes
                places.append(Place(arena, tuple(blocks), at, item_bytes, digest))
        return Leased(answer[0]["id"], places)

    def release(self, number: int) -> None:
        """End a lease or give a reservation up."""
        self._ask({"op": "release", "id": number})

    def describe(self, space: Space) -> None:
        """Say what this process stores there, now and to every service that comes after."""
        self._connection.introduction = {"op": "describe", "space": space.to_json()}
        self._ask(self._connection.introduction)

    def spaces(self) -> list[Space]:
        """Return what the pool's users have said that they store; empty without a service."""
        answer = self._ask({"op": "spaces"})
        return [Space.from_json(raw) for raw in answer[0]["spaces"]] if answer else []

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

    def _report_damage(self, chain: bytes, position: int, group: str) -> None:
        self.counts.damaged += 1
        self._ask({"op": "drop", "group": group, "first": position}, chain)

    def _ask(self, fields: dict[str, Any], blob: bytes = b"") -> Message | None:
        try:
            return self._connection.ask(fields, blob)
        except PrfaasError as error:
            self.counts.failures += 1
            if time.monotonic() - self._warned_at_s > _WARN_EVERY_S:
                self._warned_at_s = time.monotonic()
                log.warning("%s", error)
            return None


def _key(chain: bytes, position: int) -> bytes:
    return chain[position * KEY_BYTES : (position + 1) * KEY_BYTES]
