"""A receiver's rooms and peers, and how they end; `Receiver` adds lanes and frames."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from prfaas.errors import TransferError
from prfaas.transfer.events import (
    Address,
    PeerLost,
    ReceiveEvent,
    RoomFailed,
    RoomReceived,
)
from prfaas.transfer.guard import ReceiverGuard
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.machine import LaneId, Machine, RoomKey, TransferLimits
from prfaas.transfer.memo import Memo
from prfaas.transfer.reasons import Reason, count_reason, reason_text, reason_word
from prfaas.transfer.receive_peer import DialSlot, ReceiveLane, ReceivePeer
from prfaas.transfer.receive_room import ReceiveRoom
from prfaas.transfer.room_measures import RoomEnd, RoomMeasures
from prfaas.wire import Abort, Done, Hello, Open, Priority
from prfaas.wire.limits import U32_MAX, U64_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiveLimits(TransferLimits):
    """Bounds of a receiver; `lanes` is the number of connections per peer."""

    lanes: int = 4


@dataclass(slots=True)
class ReceiveCounters:
    """Totals since start."""

    rooms_opened: int = 0
    rooms_received: int = 0
    rooms_failed: Counter[str] = field(default_factory=Counter)
    chunks_received: int = 0
    chunks_discarded: int = 0
    chunks_damaged: int = 0
    payload_bytes_received: int = 0
    chunks_decoded: int = 0
    encoding_saved_bytes: int = 0
    decode_cpu_s: float = 0.0
    lanes_lost: int = 0


class ReceiverRooms(Machine[ReceiveEvent]):
    """What a receiver knows of rooms and peers."""

    limits: ReceiveLimits

    def __init__(
        self,
        layout: Layout,
        *,
        node_id: str,
        session: int,
        limits: ReceiveLimits,
        features: int = 0,
        guard: ReceiverGuard | None = None,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.node_id = node_id
        self.session = session
        self.limits = limits
        self.counters = ReceiveCounters()
        self.measures = RoomMeasures()
        self._features = features
        self._guard = guard or ReceiverGuard()
        self._digest = layout.digest()
        self._attempt = 0
        self._num_connects = 0
        self._lanes: dict[LaneId, ReceiveLane] = {}
        self._peers: dict[Address, ReceivePeer] = {}
        self._rooms: dict[int, ReceiveRoom] = {}
        self._unreached: Memo[Address, DialSlot] = Memo(limits.max_peers)
        self._ended: Memo[RoomKey, str] = Memo(4 * limits.max_rooms)

    # Rooms and peers, called by the owner

    def connect(self, address: Address, now: float) -> None:
        """Have lanes dialled to the address, unless they are. Raises: TransferError.

        An address where no lane came up last time is dialled after 0.05 s, doubled up to 2 s.
        """
        if address in self._peers:
            return
        if len(self._peers) >= self.limits.max_peers:
            text = f"at most {self.limits.max_peers} peers"
            raise TransferError(Reason.TOO_MANY_PEERS, text)
        unreached = self._unreached.get(address)
        dial_s = now if unreached is None else max(now, unreached.dial_s)
        slots = [DialSlot(dial_s) for _ in range(self.limits.lanes)]
        self._num_connects += 1
        our_session = (self.session + self._num_connects) & U64_MAX
        self._peers[address] = ReceivePeer(address, our_session, slots)
        self._wake_at(dial_s)

    def disconnect(self, address: Address) -> None:
        """Close the lanes to the address; its rooms fail."""
        peer = self._peers.get(address)
        if peer is not None:
            self._lose_peer(peer, Reason.DISCONNECTED, "closed by this side")

    def open_room(
        self,
        room: int,
        *,
        address: Address,
        grants: Mapping[str, Items],
        prefix_tokens: int,
        now: float,
        priority: Priority = Priority.FOREGROUND,
    ) -> None:
        """Open a room at the sender, as soon as a lane is up; groups not named get 0 items.

        Raises: TransferError if the room is open already, an item is out of range, or there are
            too many rooms or peers.
        """
        if room in self._rooms:
            raise TransferError(Reason.ROOM_EXISTS, f"room {room} is open")
        if len(self._rooms) >= self.limits.max_rooms:
            raise TransferError(Reason.TOO_MANY_ROOMS, f"{len(self._rooms)} rooms are open")
        items = self._grant_items(grants)
        self.connect(address, now)
        self._attempt = self._attempt % U32_MAX + 1
        state = self._rooms[room] = ReceiveRoom.open(
            self.layout,
            items,
            room=room,
            attempt=self._attempt,
            address=address,
            deadline_s=now + self.limits.room_timeout_s,
            prefix_tokens=prefix_tokens,
            priority=priority,
        )
        self.advance(now)
        state.opened_s = now
        self._wake_at(state.deadline_s)
        self.counters.rooms_opened += 1
        self._tell(self._peers[address], self._open_frame(state, now))

    def abort(self, room: int, reason: str, detail: str) -> None:
        """Fail the room, if it is open; from now on `payload_target()` never names it."""
        state = self._rooms.get(room)
        if state is not None:
            self._fail_room(state, reason_word(reason), reason_text(detail), tell=True)

    def is_known(self, address: Address) -> bool:
        """Say whether lanes to the address are up or being dialled."""
        return address in self._peers

    # State

    def _find_room(self, lane: ReceiveLane, room: int, attempt: int) -> ReceiveRoom | None:
        state = self._rooms.get(room)
        if state is None or state.attempt != attempt or state.address != lane.peer.address:
            return None
        return state

    def _grant_items(self, grants: Mapping[str, Items]) -> tuple[Items, ...]:
        items = [np.empty(0, np.int64) for _ in self.layout.groups]
        for name, granted in grants.items():
            index = self.layout.index(name)
            items[index] = self.layout.items(index, granted)
        return tuple(items)

    def _hello(self, peer: ReceivePeer, number: int) -> Hello:
        hello = Hello(
            self.node_id,
            peer.our_session,
            number,
            len(peer.slots),
            self._digest,
            self.layout.wire_groups(),
            self._features,
        )
        return replace(hello, auth=self._guard.greet(hello))

    def _open_frame(self, room: ReceiveRoom, now: float) -> Open:
        deadline_ms = max(0, min(U32_MAX, int((room.deadline_s - now) * 1000)))
        return Open(
            room.room, room.attempt, deadline_ms, room.prefix_tokens, room.counts, room.priority
        )

    def _proven(self, peer: ReceivePeer, frame: Open) -> Open:
        """Return the OPEN with its capability: when it goes out, the sender has said who it is."""
        assert peer.session is not None
        receiver, sender = (self.node_id, peer.our_session), (peer.node_id, peer.session)
        return replace(frame, capability=self._guard.capability(receiver, sender, frame))

    def _repeat(self, peer: ReceivePeer, now: float) -> None:
        """Say again what a dead lane may have lost."""
        for abort in peer.unanswered_aborts.values():
            self._tell(peer, abort)
        for room in self._rooms.values():
            if room.address == peer.address:
                self._tell(peer, self._open_frame(room, now))

    def _conclude_if_complete(self, room: ReceiveRoom) -> None:
        if not room.is_complete:
            return
        self._conclude(room, "")
        self.counters.rooms_received += 1
        self._tell(self._peers[room.address], Done(room.room, room.attempt))
        self._events.append(RoomReceived(room.room))

    def _fail_room(self, room: ReceiveRoom, reason: str, detail: str, *, tell: bool) -> None:
        self._conclude(room, reason)
        count_reason(self.counters.rooms_failed, reason)
        peer = self._peers.get(room.address)
        if tell and peer is not None:
            self._tell_abort(peer, Abort(room.room, room.attempt, reason, detail))
        self._events.append(RoomFailed(room.room, reason, detail))

    def _conclude(self, room: ReceiveRoom, reason: str) -> None:
        room.live = False
        del self._rooms[room.room]
        self._ended.put((room.room, room.attempt), reason)
        end = RoomEnd(
            room=room.room,
            reason=reason,
            is_foreground=room.priority == Priority.FOREGROUND,
            opened_s=room.opened_s,
            first_byte_s=room.first_byte_s,
            ended_s=self._now,
            granted_bytes=self.layout.num_bytes(room.counts),
        )
        self.measures.note(end)

    def _lose_peer(self, peer: ReceivePeer, reason: str, detail: str) -> None:
        text = reason_text("{}:{}: {}".format(*peer.address, detail))
        for room in [r for r in self._rooms.values() if r.address == peer.address]:
            self._fail_room(room, reason, text, tell=False)
        if peer.session is None:
            unreached = self._unreached.get(peer.address) or DialSlot(self._now)
            unreached.retry(self._now)
            self._unreached.put(peer.address, unreached)
        del self._peers[peer.address]
        for lane in peer.lanes:
            del self._lanes[lane]
            self._dead_lanes.append((lane, reason))
        self._events.append(PeerLost(peer.node_id, reason, peer.address))
