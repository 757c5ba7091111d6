"""The receiver (decode side) as a sans-IO machine."""

from typing import Any

from prfaas.errors import ProtocolError
from prfaas.transfer.events import Address, PeerUp
from prfaas.transfer.layout import Items
from prfaas.transfer.machine import LaneId, RoomKey, describe_totals
from prfaas.transfer.reasons import Reason, check_node_id, reason_text
from prfaas.transfer.receive_peer import ReceiveLane
from prfaas.transfer.receive_room import ReceiveRoom, overlap
from prfaas.transfer.receiver_rooms import ReceiveCounters, ReceiveLimits
from prfaas.transfer.spare_lanes import SpareLanes
from prfaas.wire import (
    Abort,
    Aborted,
    Chunk,
    Done,
    Feature,
    Fin,
    Foreign,
    Frame,
    Open,
    Refuse,
    Welcome,
)
from prfaas.wire.limits import VERSION

MAX_DAMAGED_CHUNKS = 3
"""Of one room; the chunk that makes it so many fails the room."""

# Plain integers: an operation on an enumeration costs ten times as much, and chunks ask often.
_DIGESTS, _COMPRESSION = int(Feature.DIGESTS), int(Feature.COMPRESSION)

__all__ = ["ReceiveCounters", "ReceiveLimits", "Receiver"]


class Receiver(SpareLanes):
    """Rooms, peers and lanes of one decode node. See the package docstring for the calling rules.

    The payload of a Chunk goes to `payload_target()`, asked anew before every read from the
    socket, and is reported with `payload_done()`.

    `session` is a random start for the session ids of HELLO. Every fresh connection to a peer gets
    its own, so that a sender that has not yet noticed the end of the last one fails its rooms.
    `features` are what it offers, `guard` says whom it trusts and what it shows.
    """

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
        """Take a frame from a lane. Raises: ProtocolError; then close the lane.

        A lane that this gives up must have stopped writing to memory before this lane is read on.
        """
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

    def wants_digest(self, lane: LaneId) -> bool:
        """Say whether `payload_done` needs the XXH3-64 of the payload being read."""
        state = self._lanes[lane]
        agreed = state.features & _DIGESTS
        return bool(agreed and state.chunk is not None and state.chunk.digest)

    def is_intact(self, lane: LaneId, digest: int | None) -> bool:
        """Say whether the payload that was read has the digest its chunk names, if that counts.

        With an encoding this is asked before the payload is decoded.
        """
        chunk = self._lanes[lane].chunk
        return not self.wants_digest(lane) or (chunk is not None and chunk.digest == digest)

    def decoded(self, chunk: Chunk, cpu_s: float) -> None:
        """Count a payload that was decoded; `payload_done` follows."""
        self.counters.chunks_decoded += 1
        self.counters.encoding_saved_bytes += chunk.plain_bytes - chunk.payload_bytes
        self.counters.decode_cpu_s += cpu_s

    def payload_done(self, lane: LaneId, digest: int | None = None) -> None:
        """The whole payload of the chunk was read. Raises: ProtocolError, also if it is damaged.

        `digest` is the XXH3-64 of what was read, where `wants_digest` asked for it and the payload
        was not discarded. A damaged chunk is not acknowledged, so it comes again on another lane.
        """
        state = self._lanes[lane]
        chunk, room = state.chunk, state.target
        is_damaged = not self.is_intact(lane, digest)
        state.chunk = state.target = None
        assert chunk is not None
        if is_damaged and room is not None and room.live:
            self._on_damaged(room, chunk)
            text = f"{Reason.DIGEST_MISMATCH}: room {room.room}, chunk {chunk.chunk}"
            if not state.peer.stands_on(state):
                raise ProtocolError(text)
            self.replace(lane, text)
            return
        state.acks.setdefault((chunk.room, chunk.attempt), []).append(chunk.chunk)
        state.num_acks += 1
        if state.num_acks > self.limits.max_control_frames:
            raise ProtocolError("the peer does not read the answers to its chunks")
        if room is None or not room.live:
            self.counters.chunks_discarded += 1
            return
        self.counters.chunks_received += 1
        self.counters.payload_bytes_received += chunk.plain_bytes
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
            frame = state.peer.control.popleft()
            return self._proven(state.peer, frame) if isinstance(frame, Open) else frame
        return state.next_ack()

    def on_timer(self, now: float) -> None:
        """Fail the rooms whose deadline has passed. Call after `take_dials` was acted on."""
        self.advance(now)
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
            "histograms": self.measures.to_json(),
            "recent_rooms": self.measures.recent(),
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
        check_node_id(frame.node_id)
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
        lane.features = int(frame.features)
        condemned = [(n, other.condemned) for n, other in peer.lanes.items() if other.condemned]
        self._dead_lanes += condemned
        peer.slots[lane.number].reset_backoff()
        if peer.session is None:
            peer.session, peer.node_id = frame.session, frame.node_id
            self._unreached.drop(peer.address)
            self._events.append(PeerUp(peer.address, frame.node_id, frame.session))

    def _on_refuse(self, lane_id: LaneId, lane: ReceiveLane, frame: Refuse) -> None:
        text = reason_text(frame.text)
        if lane.peer.session is None:
            self._lose_peer(lane.peer, frame.reason, text)
        else:
            self._dead_lanes.append((lane_id, f"{frame.reason}: {text}"))

    def _on_chunk(self, lane: ReceiveLane, frame: Chunk) -> None:
        self._check_shape(lane, frame)
        lane.chunk, lane.target = frame, None
        room = self._find_room(lane, frame.room, frame.attempt)
        if room is None:
            self._answer_stray(lane, (frame.room, frame.attempt))
        elif not room.is_granted(frame):
            name = self.layout.groups[frame.group].name
            text = f"{name}: positions {frame.start}+{frame.count} are beyond the grant"
            self._fail_room(room, Reason.COUNT_MISMATCH, text, tell=True)
        elif not room.has(frame):
            self._supersede(lane, room, frame)
            lane.target = room
            if room.first_byte_s is None:
                room.first_byte_s = self._now

    def _supersede(self, lane: ReceiveLane, room: ReceiveRoom, frame: Chunk) -> None:
        """Give up a lane that still reads these items: the sender sends again what a lane lost.

        Otherwise what is left on the dead lane could be written over the good copy.
        """
        for number, other in lane.peer.lanes.items():
            if other.target is room and other.chunk is not None and overlap(other.chunk, frame):
                other.target = None
                self._dead_lanes.append((number, Reason.SUPERSEDED))

    def _on_damaged(self, room: ReceiveRoom, chunk: Chunk) -> None:
        """Fail the room if that happens too often, or if items that were in place are damaged."""
        self.counters.chunks_damaged += 1
        room.num_damaged += 1
        if room.num_damaged >= MAX_DAMAGED_CHUNKS or room.has_any(chunk):
            text = f"{room.num_damaged} damaged chunks, the last one is {chunk.chunk}"
            self._fail_room(room, Reason.DIGEST_MISMATCH, text, tell=True)

    def _check_shape(self, lane: ReceiveLane, frame: Chunk) -> None:
        groups = self.layout.groups
        if frame.group >= len(groups) or frame.entry >= len(groups[frame.group].entries):
            raise ProtocolError(f"CHUNK for group {frame.group} entry {frame.entry}")
        item_bytes = groups[frame.group].entries[frame.entry].item_bytes
        if frame.plain_bytes != frame.count * item_bytes:
            raise ProtocolError(
                f"CHUNK: {frame.count} items of {item_bytes} bytes, payload {frame.plain_bytes}"
            )
        if frame.encoding and not lane.features & _COMPRESSION:
            raise ProtocolError(f"CHUNK: encoding {frame.encoding} was not agreed on")

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
            self._fail_room(room, frame.reason, reason_text(frame.text), tell=False)

    def _answer_stray(self, lane: ReceiveLane, key: RoomKey) -> None:
        """Answer the first frame of a room that was never open; ignore those of ended ones."""
        if self._ended.get(key) is None:
            self._ended.put(key, Reason.UNKNOWN_ROOM)
            text = "this receiver has not opened it"
            self._reply(lane, Abort(*key, Reason.UNKNOWN_ROOM, text))
