"""The receiver (decode side) as a sans-IO machine."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer.events import (
    Address,
    PeerLost,
    PeerUp,
    ReceiveEvent,
    RoomFailed,
    RoomReceived,
)
from prfaas.transfer.guard import ReceiverGuard
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.machine import LaneId, Machine, RoomKey, TransferLimits, describe_totals
from prfaas.transfer.memo import Memo
from prfaas.transfer.reasons import Reason, reason_text, reason_word
from prfaas.transfer.receive_peer import DialSlot, ReceiveLane, ReceivePeer
from prfaas.transfer.receive_room import ReceiveRoom
from prfaas.wire import (
    Abort,
    Aborted,
    Chunk,
    Done,
    Fin,
    Foreign,
    Frame,
    Hello,
    Open,
    Priority,
    Refuse,
    Welcome,
)
from prfaas.wire.limits import U32_MAX, U64_MAX, VERSION


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
    payload_bytes_received: int = 0
    lanes_lost: int = 0


class Receiver(Machine[ReceiveEvent]):
    """Rooms, peers and lanes of one decode node. See the package docstring for the calling rules.

    The payload of a Chunk goes to `payload_target()`, asked anew before every read from the
    socket, and is reported with `payload_done()`.

    `session` is a random start for the session ids of HELLO. Every fresh connection to a peer gets
    its own, so that a sender that has not yet noticed the end of the last one fails its rooms.
    `features` are what it offers, `guard` says whom it trusts and what it shows.
    """

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
        self._features = features
        self._guard = guard or ReceiverGuard()
        self._digest = layout.digest()
        self._attempt = 0
        self._num_connects = 0
        self._lanes: dict[LaneId, ReceiveLane] = {}
        self._peers: dict[Address, ReceivePeer] = {}
        self._rooms: dict[int, ReceiveRoom] = {}
        self._ended: Memo[RoomKey, str] = Memo(4 * limits.max_rooms)

    # Rooms and peers, called by the owner

    def connect(self, address: Address, now: float) -> None:
        """Have lanes dialled to the address, unless they are. Raises: TransferError."""
        if address in self._peers:
            return
        if len(self._peers) >= self.limits.max_peers:
            text = f"at most {self.limits.max_peers} peers"
            raise TransferError(Reason.TOO_MANY_PEERS, text)
        slots = [DialSlot(now) for _ in range(self.limits.lanes)]
        self._num_connects += 1
        our_session = (self.session + self._num_connects) & U64_MAX
        self._peers[address] = ReceivePeer(address, our_session, slots)
        self._wake_at(now)

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

    # Lanes, called by the shell

    def take_dials(self, now: float) -> list[tuple[Address, int]]:
        """Return the (address, lane number) to dial now; answer each with `lane_dialing`."""
        return [
            (peer.address, number)
            for peer in self._peers.values()
            for number, slot in enumerate(peer.slots)
            if slot.lane is None and slot.dial_s <= now
        ]

    def lane_dialing(self, lane: LaneId, address: Address, number: int) -> None:
        """A connection is being made; HELLO is the first frame it will be given."""
        peer = self._peers[address]
        hello = self._hello(peer, number)
        state = peer.lanes[lane] = self._lanes[lane] = ReceiveLane(peer, number, hello)
        peer.slots[number].lane = lane
        state.control.append(hello)

    def lane_closed(self, lane: LaneId, reason: str, now: float) -> None:
        """The connection is gone or was never made; unknown lanes are ignored."""
        state = self._lanes.pop(lane, None)
        if state is None:
            return
        peer = state.peer
        del peer.lanes[lane]
        peer.slots[state.number].retry(now)
        self._wake_at(peer.slots[state.number].dial_s)
        self.counters.lanes_lost += 1
        if peer.session is None:
            if not peer.lanes:
                self._lose_peer(peer, Reason.CONNECT_FAILED, reason)
        elif not peer.is_up:
            self._lose_peer(peer, Reason.LANES_LOST, reason)
        elif state.welcome:
            self._repeat(peer, now)

    def receive(self, lane: LaneId, frame: Frame) -> None:
        """Take a frame from a lane. Raises: ProtocolError; then close the lane."""
        state = self._lanes[lane]
        if isinstance(frame, Welcome):
            self._on_welcome(lane, state, frame)
        elif isinstance(frame, Refuse):
            self._on_refuse(lane, state, frame)
        elif isinstance(frame, Foreign):
            text = f"this side speaks wire version {VERSION}, the peer {frame.version}"
            self._on_refuse(lane, state, Refuse(Reason.VERSION_MISMATCH, text))
        elif not state.welcome:
            raise ProtocolError(f"{type(frame).__name__} before WELCOME")
        elif isinstance(frame, Chunk):
            self._on_chunk(state, frame)
        elif isinstance(frame, Fin):
            self._on_fin(state, frame)
        elif isinstance(frame, Abort):
            self._on_abort(state, frame)
        elif isinstance(frame, Aborted):
            state.peer.unanswered_aborts.pop((frame.room, frame.attempt), None)
        else:
            raise ProtocolError(f"a sender must not send {type(frame).__name__}")

    def payload_target(self, lane: LaneId) -> tuple[Chunk, Items] | None:
        """Return the chunk being read and its destination items; None: discard the payload."""
        state = self._lanes[lane]
        if state.chunk is None or state.target is None or not state.target.live:
            return None
        return state.chunk, state.target.destination(state.chunk)

    def is_target_live(self, lane: LaneId) -> bool:
        """Say whether the payload being read may still be written to its destination."""
        state = self._lanes.get(lane)
        return state is not None and state.target is not None and state.target.live

    def payload_done(self, lane: LaneId) -> None:
        """The whole payload of the chunk was read. Raises: ProtocolError."""
        state = self._lanes[lane]
        chunk, room = state.chunk, state.target
        state.chunk = state.target = None
        assert chunk is not None
        state.acks.setdefault((chunk.room, chunk.attempt), []).append(chunk.chunk)
        state.num_acks += 1
        if state.num_acks > self.limits.max_control_frames:
            raise ProtocolError("the peer does not read the answers to its chunks")
        if room is None or not room.live:
            self.counters.chunks_discarded += 1
            return
        self.counters.chunks_received += 1
        self.counters.payload_bytes_received += chunk.payload_bytes
        room.add(chunk)
        self._conclude_if_complete(room)

    def next_frame(self, lane: LaneId) -> Frame | None:
        """Take what the lane is to send next."""
        state = self._lanes[lane]
        if state.control:
            return state.control.popleft()
        if not state.welcome:
            return None
        if state.peer.control:
            return state.peer.control.popleft()
        return state.next_ack()

    def on_timer(self, now: float) -> None:
        """Fail the rooms whose deadline has passed. Call after `take_dials` was acted on."""
        for room in [r for r in self._rooms.values() if r.deadline_s <= now]:
            self._fail_room(room, Reason.DEADLINE, "the room's deadline passed", tell=True)
        times = [room.deadline_s for room in self._rooms.values()]
        for peer in self._peers.values():
            times += [slot.dial_s for slot in peer.slots if slot.lane is None]
        self._next_timer = min(times, default=None)

    def describe(self) -> dict[str, Any]:
        """Return JSON-able counters and gauges."""
        return {
            "rooms_open": len(self._rooms),
            **describe_totals(self.counters),
            "peers": {
                "{}:{}".format(*peer.address): {
                    "node_id": peer.node_id,
                    "session": peer.session,
                    "lanes": sum(lane.welcome for lane in peer.lanes.values()),
                }
                for peer in self._peers.values()
            },
        }

    # Frames

    def _on_welcome(self, lane_id: LaneId, lane: ReceiveLane, frame: Welcome) -> None:
        peer = lane.peer
        if lane.welcome:
            raise ProtocolError("second WELCOME on a lane")
        if frame.features & ~self._features:
            raise ProtocolError(f"WELCOME: features {frame.features} were not offered")
        if not self._guard.trust(lane.hello, frame):
            refusal = Refuse(Reason.AUTH_FAILED, "its WELCOME does not show the secret")
            self._on_refuse(lane_id, lane, refusal)
            return
        if peer.session is not None and peer.session != frame.session:
            self._lose_peer(peer, Reason.SESSION_CHANGED, "the peer restarted")
            return
        lane.welcome = True
        lane.features = frame.features
        peer.slots[lane.number].backoff_s = DialSlot(0).backoff_s
        if peer.session is None:
            peer.session, peer.node_id = frame.session, frame.node_id
            self._events.append(PeerUp(peer.address, frame.node_id, frame.session))

    def _on_refuse(self, lane_id: LaneId, lane: ReceiveLane, frame: Refuse) -> None:
        if lane.peer.session is None:
            self._lose_peer(lane.peer, frame.reason, frame.text)
        else:
            self._dead_lanes.append((lane_id, f"{frame.reason}: {frame.text}"))

    def _on_chunk(self, lane: ReceiveLane, frame: Chunk) -> None:
        self._check_shape(frame)
        lane.chunk, lane.target = frame, None
        room = self._find_room(lane, frame.room, frame.attempt)
        if room is None:
            self._answer_stray(lane, (frame.room, frame.attempt))
        elif not room.is_granted(frame):
            name = self.layout.groups[frame.group].name
            text = f"{name}: positions {frame.start}+{frame.count} are beyond the grant"
            self._fail_room(room, Reason.COUNT_MISMATCH, text, tell=True)
        elif not room.has(frame):
            lane.target = room

    def _check_shape(self, frame: Chunk) -> None:
        groups = self.layout.groups
        if frame.group >= len(groups) or frame.entry >= len(groups[frame.group].entries):
            raise ProtocolError(f"CHUNK for group {frame.group} entry {frame.entry}")
        item_bytes = groups[frame.group].entries[frame.entry].item_bytes
        if frame.payload_bytes != frame.count * item_bytes:
            raise ProtocolError(
                f"CHUNK: {frame.count} items of {item_bytes} bytes, payload {frame.payload_bytes}"
            )

    def _on_fin(self, lane: ReceiveLane, frame: Fin) -> None:
        if len(frame.totals) != len(self.layout.groups):
            raise ProtocolError(f"FIN with {len(frame.totals)} groups")
        key = (frame.room, frame.attempt)
        room = self._find_room(lane, *key)
        if room is None:
            if self._ended.get(key) == "":
                self._reply(lane, Done(*key))
            else:
                self._answer_stray(lane, key)
        elif frame.totals != room.counts:
            granted, sent = self.layout.named(room.counts), self.layout.named(frame.totals)
            text = f"granted {granted}, the sender says {sent}"
            self._fail_room(room, Reason.COUNT_MISMATCH, text, tell=True)
        else:
            room.finished = True
            self._conclude_if_complete(room)

    def _on_abort(self, lane: ReceiveLane, frame: Abort) -> None:
        self._reply(lane, Aborted(frame.room, frame.attempt))
        room = self._find_room(lane, frame.room, frame.attempt)
        if room is not None:
            self._fail_room(room, frame.reason, frame.text, tell=False)

    def _answer_stray(self, lane: ReceiveLane, key: RoomKey) -> None:
        """Answer the first frame of a room that was never open; ignore those of ended ones."""
        if self._ended.get(key) is None:
            self._ended.put(key, Reason.UNKNOWN_ROOM)
            text = "this receiver has not opened it"
            self._reply(lane, Abort(*key, Reason.UNKNOWN_ROOM, text))

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
        frame = Open(
            room.room, room.attempt, deadline_ms, room.prefix_tokens, room.counts, room.priority
        )
        our_session = self._peers[room.address].our_session
        capability = self._guard.capability(self.node_id, our_session, frame)
        return replace(frame, capability=capability)

    def _repeat(self, peer: ReceivePeer, now: float) -> None:
        """Say again what a dead lane may have lost."""
        peer.control.extend(peer.unanswered_aborts.values())
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
        self.counters.rooms_failed[reason] += 1
        peer = self._peers.get(room.address)
        if tell and peer is not None:
            self._tell_abort(peer, Abort(room.room, room.attempt, reason, detail))
        self._events.append(RoomFailed(room.room, reason, detail))

    def _conclude(self, room: ReceiveRoom, reason: str) -> None:
        room.live = False
        del self._rooms[room.room]
        self._ended.put((room.room, room.attempt), reason)

    def _lose_peer(self, peer: ReceivePeer, reason: str, detail: str) -> None:
        text = reason_text("{}:{}: {}".format(*peer.address, detail))
        for room in [r for r in self._rooms.values() if r.address == peer.address]:
            self._fail_room(room, reason, text, tell=False)
        del self._peers[peer.address]
        for lane in peer.lanes:
            del self._lanes[lane]
            self._dead_lanes.append((lane, reason))
        self._events.append(PeerLost(peer.node_id, reason, peer.address))
