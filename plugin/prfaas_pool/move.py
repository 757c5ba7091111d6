"""Moving a prefix from one pool to another over the lanes, in the background.

The source *offers* what it has beyond what the destination has: an `Offer`, small, that travels as
JSON by whatever way the two ends talk. The destination *accepts*: it reserves blocks for what it
lacks, opens a background room for them, verifies every item's digest when all have come, and
commits them. KV that is there already does not cross again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from prfaas.blocks.block_layout import DIGEST_BYTES, KEY_BYTES, KV
from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer.events import (
    Address,
    ReceiveEvent,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    SendEvent,
)
from prfaas.transfer.layout import Items
from prfaas.transfer.reasons import Reason
from prfaas.wire.frames import Priority
from prfaas_pool.client import PoolClient
from prfaas_pool.entry_form import item_digest
from prfaas_pool.place import Leased, Place, Reserved
from prfaas_pool.slots import SlotMemory
from prfaas_transport import ReceiveNode, SendNode

log = logging.getLogger("prfaas.pool")

MOVE_S = 120.0
"""How long a move may take; then both ends give up what they hold."""
UNCLAIMED_S = 10.0
"""How long an offer waits for its room to be opened."""
MAX_OFFERS = 64
_MAX_GROUPS = 16


@dataclass(frozen=True, slots=True)
class OfferedGroup:
    """Items of the pages from `first` on, one after the other, with their digests (hex)."""

    group: str
    first: int
    digests: str

    @property
    def count(self) -> int:
        """How many items."""
        return len(self.digests) // (2 * DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source can send of a chain, of which `pages` pages can be resumed from then."""

    room: int
    pages: int
    groups: tuple[OfferedGroup, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Any) -> "Offer":
        """Return what `to_json` gave.

        Raises:
            ProtocolError: it is something else.
        """
        try:
            groups = tuple(
                OfferedGroup(str(item["group"]), int(item["first"]), str(item["digests"]))
                for item in raw["groups"][: _MAX_GROUPS + 1]
            )
            offer = cls(int(raw["room"]), int(raw["pages"]), groups)
            for item in groups:
                bytes.fromhex(item.digests)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(f"offer of a prefix: {error}") from None
        if not 0 < len({item.group for item in groups}) == len(groups) <= _MAX_GROUPS:
            raise ProtocolError("offer of a prefix: no groups, too many, or one of them twice")
        if any(item.first < 0 or item.first + item.count > offer.pages for item in groups):
            raise ProtocolError("offer of a prefix: items beyond its pages")
        return offer


@dataclass(slots=True)
class _Held:
    """What is leased for an offer; `since_s` is when it was made, None once its room is open."""

    groups: list[tuple[OfferedGroup, Leased, Items]]
    since_s: float | None


class MoveSource:
    """Offers prefixes of a pool and sends what is accepted. Pass its `on_event` to the node.

    Events are handled on a thread of its own: the pool may keep it waiting, the lanes may not.
    """

    def __init__(self, client: PoolClient, memory: SlotMemory) -> None:
        self.node: SendNode | None = None
        self._client = client
        self._memory = memory
        self._lock = threading.Lock()
        self._leases: dict[int, _Held] = {}
        self._worker = ThreadPoolExecutor(1, "prfaas-move-source")

    def close(self) -> None:
        """Take all offers back; close the node first."""
        self._worker.shutdown()
        for room in list(self._leases):
            self.withdraw(room)

    def offer(
        self,
        room: int,
        chain: bytes,
        *,
        have_pages: int,
        trailing: Mapping[str, int],
        usable_pages: int | None = None,
    ) -> Offer | None:
        """Offer what a destination that has KV of `have_pages` lacks; None where that is nothing.

        `usable_pages` is how many of them it can resume from (None: all), `trailing` the state
        groups of the model, as in `PoolClient.match`.
        """
        self._withdraw_unclaimed()
        match = self._client.match(chain, trailing)
        pages = max(match.usable, default=0)
        if pages <= (have_pages if usable_pages is None else usable_pages):
            return None
        chain = chain[: pages * KEY_BYTES]
        firsts = {name: max(0, pages - window) for name, window in trailing.items()}
        if pages > have_pages:
            firsts = {KV: have_pages, **firsts}
        held: list[tuple[OfferedGroup, Leased, Items]] = []
        for name, first in firsts.items():
            item = self._lease(chain, name, first)
            if item is None:
                self._end(held)
                return None
            held.append(item)
        with self._lock:
            is_full = len(self._leases) >= MAX_OFFERS
            if not is_full:
                self._leases[room] = _Held(held, time.monotonic())
        if is_full:
            self._end(held)
            return None
        return Offer(room, pages, tuple(item for item, _, _ in held))

    def on_event(self, event: SendEvent) -> None:
        """Send to whoever opens an offered room; let go when it is over."""
        if isinstance(event, RoomOpened):
            self._worker.submit(self._send, event.room)
        elif isinstance(event, RoomSent | RoomFailed):
            self._worker.submit(self.withdraw, event.room)

    def withdraw(self, room: int) -> None:
        """Take an offer back, as when nobody accepted it in time."""
        with self._lock:
            held = self._leases.pop(room, None)
        if held is not None:
            self._end(held.groups)

    def _withdraw_unclaimed(self) -> None:
        limit_s = time.monotonic() - UNCLAIMED_S
        with self._lock:
            old = [
                room
                for room, held in self._leases.items()
                if held.since_s is not None and held.since_s < limit_s
            ]
        for room in old:
            self.withdraw(room)

    def _send(self, room: int) -> None:
        with self._lock:
            held = self._leases.get(room)
            if held is not None:
                held.since_s = None
        if self.node is None:
            return
        if held is None:
            self.node.abort(room, Reason.ABORTED, "no such offer, or it is over")
            return
        try:
            for item, _, slots in held.groups:
                self.node.submit(room, group=item.group, start=0, items=slots)
            self.node.finish(room, {item.group: item.count for item, _, _ in held.groups})
        except TransferError as error:
            self.node.abort(room, error.reason, error.detail)
            self.withdraw(room)

    def _lease(
        self, chain: bytes, group: str, first: int
    ) -> tuple[OfferedGroup, Leased, Items] | None:
        size = self._memory.layout.groups[self._memory.layout.index(group)].entries[0].item_bytes
        leased = self._client.lease(chain, first, group=group, item_bytes=size, hold_s=MOVE_S)
        if leased is None:
            return None
        if len(leased.places) < len(chain) // KEY_BYTES - first:
            self._client.release(leased.number)
            return None
        digests = b"".join(place.digest for place in leased.places).hex()
        slots = self._memory.bind(group, leased.places)
        return OfferedGroup(group, first, digests), leased, slots

    def _end(self, held: list[tuple[OfferedGroup, Leased, Items]]) -> None:
        for item, leased, slots in held:
            self._memory.free(item.group, slots)
            self._client.release(leased.number)


@dataclass(frozen=True, slots=True, eq=False)
class _ArrivingGroup:
    item: OfferedGroup
    reserved: Reserved
    places: list[tuple[int, Place]]
    slots: Items


@dataclass(slots=True)
class _Arriving:
    chain: bytes
    groups: list[_ArrivingGroup]


class MoveDestination:
    """Accepts offers into a pool. Pass its `on_event` to the node.

    Events are handled on a thread of its own. `on_outcome` gets a concluded room and how many pages
    of its chain are stored now, 0 where it failed.
    """

    def __init__(
        self, client: PoolClient, memory: SlotMemory, *, on_outcome: Callable[[int, int], None]
    ) -> None:
        self.node: ReceiveNode | None = None
        self._on_outcome = on_outcome
        self._worker = ThreadPoolExecutor(1, "prfaas-move-destination")
        self._client = client
        self._memory = memory
        self._lock = threading.Lock()
        self._arriving: dict[int, _Arriving] = {}

    def close(self) -> None:
        """Give up what has not come; close the node first."""
        self._worker.shutdown()
        for room in list(self._arriving):
            self._conclude(room, is_complete=False)

    def accept(self, offer: Offer, chain: bytes, *, address: Address) -> bool:
        """Reserve blocks and open the offered room; False where there is no room in the pool.

        Raises:
            TransferError: the room cannot be opened, or the model has no such group.
        """
        assert self.node is not None
        arriving = _Arriving(chain[: offer.pages * KEY_BYTES], [])
        try:
            is_whole = all(self._reserve(arriving, item) for item in offer.groups)
        except BaseException:
            self._give_up(arriving)
            raise
        if not is_whole:
            self._give_up(arriving)
            return False
        with self._lock:
            self._arriving[offer.room] = arriving
        grants = {group.item.group: group.slots for group in arriving.groups}
        try:
            self.node.open_room(
                offer.room, address=address, grants=grants, priority=Priority.BACKGROUND
            )
        except TransferError:
            self._conclude(offer.room, is_complete=False)
            raise
        return True

    def on_event(self, event: ReceiveEvent) -> None:
        """Verify and commit what has come whole; give up what has not."""
        if isinstance(event, RoomReceived | RoomFailed):
            is_complete = isinstance(event, RoomReceived)
            self._worker.submit(self._conclude, event.room, is_complete=is_complete)

    def _reserve(self, arriving: _Arriving, item: OfferedGroup) -> bool:
        size = self._memory.layout.groups[self._memory.layout.index(item.group)].entries[0]
        reserved = self._client.reserve(
            arriving.chain[: (item.first + item.count) * KEY_BYTES],
            item.first,
            group=item.group,
            item_bytes=size.item_bytes,
            moved=True,
            hold_s=MOVE_S,
        )
        if reserved is None or not reserved.number:
            return False
        places = list(reserved.places())
        slots = self._memory.bind(item.group, [place for _, place in places])
        arriving.groups.append(_ArrivingGroup(item, reserved, places, slots))
        # A sender sends all it offered or nothing: what came here meanwhile makes the offer old.
        return len(places) == item.count

    def _conclude(self, room: int, *, is_complete: bool) -> None:
        with self._lock:
            arriving = self._arriving.pop(room, None)
        if arriving is None:
            return
        pages = 0
        try:
            if is_complete and all(_is_right(group, arriving.chain) for group in arriving.groups):
                pages = self._commit(arriving)
        except Exception as error:  # a thread's outermost frame, and somebody waits for the outcome
            log.warning("move into room %d: %s", room, error)
            pages = 0
        self._give_up(arriving)
        self._on_outcome(room, pages)

    def _commit(self, arriving: _Arriving) -> int:
        """Store what has come; return how many pages of the chain are here then. What is stored
        leaves `arriving`."""
        chain = arriving.chain
        pages = len(chain) // KEY_BYTES
        # States first: they wait for the KV, and nobody sees a prefix without them.
        for group in sorted(arriving.groups, key=lambda group: group.item.group == KV):
            digests = bytes.fromhex(group.item.digests)
            stored = self._client.commit(group.reserved, chain, 0, digests)
            pages = stored if group.item.group == KV else min(pages, stored)
            arriving.groups.remove(group)
            self._memory.free(group.item.group, group.slots)
        return pages

    def _give_up(self, arriving: _Arriving) -> None:
        for group in arriving.groups:
            self._memory.free(group.item.group, group.slots)
            self._client.release(group.reserved.number)


def _is_right(group: _ArrivingGroup, chain: bytes) -> bool:
    found = (
        item_digest(place.read(), chain[position * KEY_BYTES : (position + 1) * KEY_BYTES])
        for position, place in group.places
    )
    return b"".join(found) == bytes.fromhex(group.item.digests)
