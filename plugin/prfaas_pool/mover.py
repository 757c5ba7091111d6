"""Moves between this host's pool and those of other hosts: all models, one pair of lanes each.

The destination leads: it says what it `lacks`, gets the source's `offer` by whatever way the two
talk, and `take`s it. Everything here may wait, for the pool or for the lanes: call it on a thread.
"""

import logging
import queue
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prfaas.transfer.events import Address
from prfaas_pool.client import PoolClient
from prfaas_pool.move import MOVE_S, MoveDestination, MoveSource, Offer
from prfaas_pool.slots import SlotMemory, moving_layout
from prfaas_pool.space import Space
from prfaas_transport import ReceiveNode, SendNode, TransportConfig

log = logging.getLogger("prfaas.pool")

MAX_LAYOUTS = 16
_ROOM_LIMIT = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Lack:
    """What this host has of a chain: KV of `kv_pages`, of which `usable_pages` can be resumed."""

    space: Space
    chain: bytes
    kv_pages: int
    usable_pages: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What a move brought: `pages` of the chain can be resumed from now; 0 where it failed."""

    pages: int
    num_bytes: int


class Mover:
    """Source and destination of moves for the pool behind `socket`. Close it at the end.

    `host` is where the lanes listen and dial from; `node_id` names this process to its peers.
    """

    def __init__(self, socket: str, *, node_id: str, host: str, config: TransportConfig) -> None:
        self._client = PoolClient(socket)
        self._node_id = node_id
        self._host = host
        self._config = config
        self._lock = threading.Lock()
        self._pairs: dict[tuple[tuple[str, int], ...], _Pair] = {}

    def close(self) -> None:
        """End all moves and lanes."""
        with self._lock:
            pairs, self._pairs = list(self._pairs.values()), {}
        for pair in pairs:
            pair.close()
        self._client.close()

    def spaces(self, model: str) -> list[Space]:
        """Return what is stored of a model here: one for each of an engine's workers."""
        return [space for space in self._client.spaces() if space.model == model]

    def lacks(self, space: Space, page_hashes: Sequence[str]) -> Lack:
        """Return what there is of a prompt, so that a source can say what is missing."""
        chain = space.namespace.keys(page_hashes)
        match = self._client.match(chain, space.trailing)
        usable = max(match.usable, default=0) if space.is_known else 0
        return Lack(space, chain, match.kv_pages, usable)

    def offer(
        self, room: int, model: str, layout: str, chain: bytes, *, have: tuple[int, int]
    ) -> tuple[Offer, Address] | None:
        """Offer what the destination lacks, and say where the lanes are; None: there is no more.

        `have`: its KV pages, and how many of them it can resume from.

        Raises:
            TransferError: no lanes can be had.
        """
        space = next((item for item in self.spaces(model) if item.layout == layout), None)
        if space is None or not space.is_known:
            return None
        kv_pages, usable_pages = have
        pair = self._pair(space)
        offer = pair.source.offer(
            room,
            chain,
            have_pages=kv_pages,
            usable_pages=usable_pages,
            trailing=space.trailing,
        )
        return None if offer is None else (offer, pair.sends.address)

    def take(self, lack: Lack, offer: Offer, address: Address) -> Taken:
        """Bring an offer here; wait until it is stored, or failed.

        Raises:
            TransferError: its room cannot be opened.
        """
        pair = self._pair(lack.space)
        outcome = pair.expect(offer.room)
        try:
            if not pair.destination.accept(offer, lack.chain, address=address):
                return Taken(0, 0)
            pages = outcome.get(timeout=MOVE_S + 10)
        except queue.Empty:
            return Taken(0, 0)
        finally:
            pair.forget(offer.room)
        sizes = lack.space.item_bytes
        num_bytes = sum(item.count * sizes[item.group] for item in offer.groups)
        return Taken(pages, num_bytes if pages else 0)

    def stats(self) -> dict[str, Any]:
        """Return what has moved, by direction, in bytes."""
        with self._lock:
            pairs = list(self._pairs.values())
        return {
            "sent_bytes": sum(pair.sends.stats()["payload_bytes_sent_total"] for pair in pairs),
        }

    def _pair(self, space: Space) -> "_Pair":
        key = tuple(sorted(space.item_bytes.items()))
        gone = None
        with self._lock:
            pair = self._pairs.pop(key, None)
            if pair is None:
                if len(self._pairs) >= MAX_LAYOUTS:
                    gone = self._pairs.pop(next(iter(self._pairs)))
                name = f"{self._node_id}/move"
                pair = _Pair(self._client, space, name, self._host, self._config)
            self._pairs[key] = pair  # the one used last stands last
        if gone is not None:
            gone.close()
        return pair


class _Pair:
    """The lanes of one layout, both ways."""

    def __init__(
        self, client: PoolClient, space: Space, node_id: str, host: str, config: TransportConfig
    ) -> None:
        layout = moving_layout(space.item_bytes)
        memories = SlotMemory(layout), SlotMemory(layout)
        self._outcomes: dict[int, queue.Queue[int]] = {}
        self.source = MoveSource(client, memories[0])
        self.destination = MoveDestination(client, memories[1], on_outcome=self._conclude)
        self.sends = SendNode(
            layout=layout,
            memory=memories[0],
            node_id=node_id,
            host=host,
            config=config,
            on_event=self.source.on_event,
        )
        self.source.node = self.sends
        try:
            self._receives = ReceiveNode(
                layout=layout,
                memory=memories[1],
                node_id=node_id,
                source_host=host,
                config=config,
                on_event=self.destination.on_event,
            )
        except BaseException:
            self.sends.close()
            raise
        self.destination.node = self._receives

    def expect(self, room: int) -> "queue.Queue[int]":
        outcome = self._outcomes[room] = queue.Queue()
        return outcome

    def forget(self, room: int) -> None:
        self._outcomes.pop(room, None)

    def close(self) -> None:
        self.sends.close()
        self._receives.close()
        self.source.close()
        self.destination.close()

    def _conclude(self, room: int, pages: int) -> None:
        outcome = self._outcomes.get(room)
        if outcome is not None:
            outcome.put(pages)


def new_room() -> int:
    """Return a room that nobody else has: by chance, as two regions do not count together."""
    return secrets.randbelow(_ROOM_LIMIT) + 1
