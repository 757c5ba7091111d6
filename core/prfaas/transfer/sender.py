"""The sender (prefill side) as a sans-IO machine."""

from typing import Any

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer.compression import SMALLEST_BYTES, CompressionControl
from prfaas.transfer.events import PeerJoined, RoomOpened, RoomSent
from prfaas.transfer.layout import mismatch
from prfaas.transfer.machine import LaneId, describe_totals
from prfaas.transfer.reasons import Reason, check_node_id, count_reason, reason_text, reason_word
from prfaas.transfer.schedule import FairQueue
from prfaas.transfer.send_peer import SendLane, SendPeer
from prfaas.transfer.send_room import ChunkOut, SendLeg, SendRoom
from prfaas.transfer.sender_rooms import SendCounters, SenderRooms, SendLimits
from prfaas.transfer.signals import LaneSample, PeerSignals
from prfaas.wire import (
    Abort,
    Aborted,
    Ack,
    Chunk,
    Done,
    Feature,
    Fin,
    Foreign,
    Frame,
    Hello,
    Open,
    Priority,
    Refuse,
    Welcome,
)
from prfaas.wire.limits import MAX_ENCODED_BYTES, MAX_LANES, VERSION

# Plain integers: an operation on an enumeration costs ten times as much, and chunks ask often.
_DIGESTS, _COMPRESSION = int(Feature.DIGESTS), int(Feature.COMPRESSION)

__all__ = ["SendCounters", "SendLimits", "Sender"]


class Sender(SenderRooms):
    """Rooms, peers and lanes of one prefill node. See the package docstring for the calling rules.

    `session` must be new for every process start. Peers are told apart by node id; a known node id
    with a new session is a restarted peer, and its old session's rooms fail. `features` are what it
    accepts when a peer offers them, `guard` says whom it trusts.
    """

    # Lanes, called by the shell

    def lane_opened(self, lane: LaneId) -> None:
        """A connection was accepted; its HELLO is awaited."""
        self._lanes[lane] = SendLane()

    def lane_closed(self, lane: LaneId, reason: str) -> None:
        """The connection is gone; unknown lanes are ignored."""
        state = self._lanes.pop(lane, None)
        if state is None or state.peer is None:
            return
        peer = state.peer
        del peer.lanes[lane]
        self.counters.chunks_resent += peer.requeue(state)
        if not peer.lanes:
            self._lose_peer(peer, Reason.LANES_LOST, reason)
            return
        for abort in peer.unanswered_aborts.values():
            self._tell(peer, abort)
        for room in self._rooms.values():
            leg = room.legs.get(peer.node_id)
            if room.totals is not None and leg is not None and leg.live:
                self._tell(peer, Fin(room.room, leg.attempt, room.totals))

    def receive(self, lane: LaneId, frame: Frame, now: float) -> None:
        """Take a frame from a lane. Raises: ProtocolError; then close the lane."""
        self.advance(now)
        self._traffic.advance(now)
        state = self._lanes[lane]
        if state.refused:
            return
        if isinstance(frame, Hello):
            self._on_hello(lane, state, frame)
            return
        if isinstance(frame, Foreign):
            text = f"this side speaks wire version {VERSION}, the peer {frame.version}"
            self._refuse(state, Refuse(Reason.VERSION_MISMATCH, text, frame.version))
            return
        peer = state.peer
        if peer is None:
            raise ProtocolError(f"{type(frame).__name__} before HELLO")
        if isinstance(frame, Ack):
            self._on_ack(peer, state, frame)
        elif isinstance(frame, Open):
            self._on_open(peer, state, frame, now)
        elif isinstance(frame, Done):
            self._on_done(peer, frame)
        elif isinstance(frame, Abort):
            self._on_abort(peer, state, frame)
        elif isinstance(frame, Aborted):
            peer.unanswered_aborts.pop((frame.room, frame.attempt), None)
        else:
            raise ProtocolError(f"a receiver must not send {type(frame).__name__}")

    def next_frame(self, lane: LaneId) -> Frame | ChunkOut | None:
        """Take what the lane is to send next; close it after a Refuse was written."""
        state = self._lanes[lane]
        if state.control:
            return state.control.popleft()
        peer = state.peer
        if peer is None:
            return None
        if peer.control:
            return peer.control.popleft()
        chunk = peer.next_chunk(state)
        if chunk is not None:
            self.counters.chunks_sent += 1
            self.counters.payload_bytes_sent += chunk.frame.payload_bytes
            peer.note_sent(state, chunk, self._now)
        return chunk

    def on_timer(self, now: float) -> None:
        """Fail the rooms whose deadline has passed; then lanes may have something to send."""
        self.advance(now)
        self._traffic.advance(now)
        self._traffic.on_timer()
        for room in [r for r in self._rooms.values() if r.deadline_s <= now]:
            self._fail_room(room, Reason.DEADLINE, "the room's deadline passed")
        self._next_timer = min((r.deadline_s for r in self._rooms.values()), default=None)

    def next_timer(self) -> float | None:
        """Return when `on_timer` has something to do, or None."""
        times = (super().next_timer(), self._traffic.next_timer())
        return min((at_s for at_s in times if at_s is not None), default=None)

    def wants_digest(self, lane: LaneId) -> bool:
        """Say whether the lane's chunks are to carry the XXH3-64 of their payload."""
        return bool(self._lanes[lane].features & _DIGESTS)

    def wants_encoding(self, lane: LaneId, chunk: ChunkOut) -> bool:
        """Say whether a chunk just taken for the lane is to be encoded, if its entry shrinks."""
        state = self._lanes[lane]
        if state.peer is None or not state.features & _COMPRESSION:
            return False
        is_fit = SMALLEST_BYTES <= chunk.frame.payload_bytes <= MAX_ENCODED_BYTES
        return is_fit and state.peer.compression.wants()

    def encoding_width(self, lane: LaneId, chunk: Chunk) -> int | None:
        """Return the width of the elements to encode a chunk by, 0: try which is best.

        None: it goes out plain. What is tried is reported with `encoded`.
        """
        width = self._codings.width((chunk.group, chunk.entry))
        state = self._lanes.get(lane)
        if width is None and state is not None and state.peer is not None:
            state.peer.compression.coded(chunk.plain_bytes, chunk.plain_bytes, 0.0)
        return width

    def encoded(self, lane: LaneId, chunk: Chunk, cpu_s: float) -> None:
        """Learn what became of a chunk that was to be encoded: its frame is that which goes out."""
        saved_bytes = chunk.plain_bytes - chunk.payload_bytes
        self._codings.note(
            (chunk.group, chunk.entry), chunk.encoding, chunk.plain_bytes, chunk.payload_bytes
        )
        self.counters.chunks_encoded += bool(chunk.encoding)
        self.counters.chunks_left_plain += not chunk.encoding
        self.counters.encoding_saved_bytes += saved_bytes
        self.counters.encode_cpu_s += cpu_s
        state = self._lanes.get(lane)
        if state is not None and state.peer is not None:
            state.peer.compression.coded(chunk.plain_bytes, chunk.payload_bytes, cpu_s)

    def sampled(self, sample: LaneSample) -> None:
        """Take a reading of a lane; every lane should be read about five times a second.

        The peers' signals and how much background their paths get follow from it.
        """
        lane = self._lanes.get(sample.lane)
        if lane is not None and lane.peer is not None:
            lane.sample = sample
            lane.peer.observe(self.limits.background, sample.at_s)

    def has_random_loss(self, lane: LaneId) -> bool:
        """Say whether the lane's path was seen to lose packets though no queue builds up."""
        state = self._lanes.get(lane)
        return state is not None and state.peer is not None and state.peer.random_loss.is_seen

    def signals(self) -> dict[str, PeerSignals]:
        """Return the latest signals per peer, by node id."""
        return {node_id: peer.signals for node_id, peer in self._peers.items()}

    def describe(self) -> dict[str, Any]:
        """Return JSON-able counters and gauges."""
        return {
            "rooms_open": len(self._rooms),
            "chunks_queued": self.num_queued_chunks,
            **describe_totals(self.counters),
            "histograms": self.measures.to_json(),
            "recent_rooms": self.measures.recent(),
            "peers": {
                peer.node_id: {
                    "session": peer.session,
                    "lanes": len(peer.lanes),
                    "backlog_bytes": peer.backlog_bytes,
                    "background_bytes": peer.background_bytes,
                    "signals": peer.signals.to_json(),
                    "compression": peer.compression.describe(),
                    "ack_s": peer.ack_s.to_json(),
                }
                for peer in self._peers.values()
            },
        }

    # Frames

    def _on_hello(self, lane: LaneId, state: SendLane, frame: Hello) -> None:
        if state.peer is not None:
            raise ProtocolError("second HELLO on a lane")
        check_node_id(frame.node_id)
        peer = self._peers.get(frame.node_id)
        is_new = peer is None or peer.session != frame.session
        refusal = self._refusal(frame, None if is_new else peer)
        if refusal is not None:
            self._refuse(state, refusal)
            return
        auth = self._guard.answer(frame)
        if auth is None:
            text = "the peer does not know this deployment's secret"
            self._refuse(state, Refuse(Reason.AUTH_FAILED, text))
            return
        if peer is not None and is_new:
            self._lose_peer(peer, Reason.SESSION_CHANGED, "the peer restarted")
        if peer is None or is_new:
            peer = self._add_peer(frame)
            self._events.append(PeerJoined(frame.node_id))
        state.peer = peer
        peer.lanes[lane] = state
        state.features = int(frame.features & self._features)
        state.control.append(Welcome(self.node_id, self.session, state.features, auth))

    def _refuse(self, state: SendLane, refusal: Refuse) -> None:
        state.refused = True
        state.control.append(refusal)
        self.counters.lanes_refused[refusal.reason] += 1

    def _add_peer(self, frame: Hello) -> SendPeer:
        quantum = self.limits.chunk_bytes
        peer = self._peers[frame.node_id] = SendPeer(
            frame.node_id,
            frame.session,
            self._traffic,
            FairQueue(quantum),
            FairQueue(quantum),
            self.limits.background.window_bytes,
            compression=CompressionControl(self.limits.compression),
        )
        return peer

    def _refusal(self, frame: Hello, peer: SendPeer | None) -> Refuse | None:
        if frame.digest != self._digest:
            return Refuse(Reason.LAYOUT_MISMATCH, mismatch(self.layout, frame.groups))
        if peer is not None and len(peer.lanes) >= MAX_LANES:
            return Refuse(Reason.TOO_MANY_LANES, f"at most {MAX_LANES} lanes per peer")
        if frame.node_id not in self._peers and len(self._peers) >= self.limits.max_peers:
            return Refuse(Reason.TOO_MANY_PEERS, f"at most {self.limits.max_peers} peers")
        return None

    def _on_open(self, peer: SendPeer, lane: SendLane, frame: Open, now: float) -> None:
        if len(frame.grants) != len(self.layout.groups):
            raise ProtocolError(f"OPEN with {len(frame.grants)} groups")
        room = self._rooms.get(frame.room)
        leg = room.legs.get(peer.node_id) if room is not None else None
        if leg is not None and (leg.session, leg.attempt) == (peer.session, frame.attempt):
            return
        refusal = self._room_refusal(peer, leg, frame, now)
        if refusal is not None:
            count_reason(self.counters.rooms_refused, refusal.reason)
            self._reply(lane, refusal)
            return
        if leg is not None:
            self._end_leg(leg, Abort(frame.room, leg.attempt, Reason.SUPERSEDED, ""))
        if room is None:
            room = self._add_room(frame, now)
        self._add_leg(room, peer, frame)

    def _room_refusal(
        self, peer: SendPeer, leg: SendLeg | None, frame: Open, now: float
    ) -> Abort | None:
        ended_leg = self._ended_legs.get((peer.session, frame.room, frame.attempt))
        if ended_leg is not None:
            return ended_leg
        if leg is not None and leg.session == peer.session and leg.attempt > frame.attempt:
            return Abort(frame.room, frame.attempt, Reason.SUPERSEDED, "a newer attempt is open")
        ended = self._concluded.get(frame.room)
        if frame.room not in self._rooms and ended is not None:
            session, attempt = ended.attempts.get(peer.node_id, (peer.session, frame.attempt))
            reopened = session != peer.session or attempt < frame.attempt
            if ended.reason and now < ended.until_s and not reopened:
                return Abort(frame.room, frame.attempt, ended.reason, ended.detail)
        if frame.room not in self._rooms and len(self._rooms) >= self.limits.max_rooms:
            text = f"{len(self._rooms)} rooms are open"
            return Abort(frame.room, frame.attempt, Reason.TOO_MANY_ROOMS, text)
        reason = self._guard.admit(peer.node_id, peer.session, frame)
        if reason:
            return Abort(frame.room, frame.attempt, reason_word(reason), "refused by the sender")
        return None

    def _add_room(self, frame: Open, now: float) -> SendRoom:
        deadline_s = now + min(frame.deadline_ms / 1000, self.limits.room_timeout_s)
        room = self._rooms[frame.room] = SendRoom(
            frame.room, deadline_s, now, is_foreground=frame.priority == Priority.FOREGROUND
        )
        self._concluded.drop(frame.room)
        self._wake_at(deadline_s)
        self.counters.rooms_opened += 1
        return room

    def _add_leg(self, room: SendRoom, peer: SendPeer, frame: Open) -> None:
        leg = SendLeg(
            room.room, frame.attempt, peer.node_id, peer.session, frame.grants, frame.priority
        )
        leg.chunk_bytes = self.limits.chunk_bytes
        if not leg.is_foreground:
            leg.chunk_bytes = min(leg.chunk_bytes, self.limits.background.chunk_bytes)
        room.legs[peer.node_id] = leg
        grants = self.layout.named(frame.grants)
        self._events.append(RoomOpened(room.room, peer.node_id, frame.prefix_tokens, grants))
        try:
            for submission in room.submissions:
                leg.check_range(submission, self.layout.groups[submission.group].name)
                self._enqueue(room, leg, submission)
        except TransferError as error:
            self._fail_room(room, error.reason, error.detail)
            return
        if room.totals is not None:
            self._tell(peer, Fin(room.room, leg.attempt, room.totals))

    def _on_ack(self, peer: SendPeer, lane: SendLane, frame: Ack) -> None:
        for number in frame.chunks:
            key = (frame.room, frame.attempt, number)
            peer.note_acked(lane, key, self._now)
            if peer.acknowledged(lane, key):
                self.num_queued_chunks -= 1
                self.counters.chunks_acked += 1

    def _on_done(self, peer: SendPeer, frame: Done) -> None:
        room, leg = self._find_leg(peer, frame.room, frame.attempt)
        if room is None or leg is None:
            return
        if room.totals is None:
            self._fail_room(room, Reason.PROTOCOL_ERROR, "DONE before FIN")
            return
        leg.done = True
        self._end_leg(leg, Abort(frame.room, frame.attempt, Reason.ROOM_CONCLUDED, "sent"))
        if all(other.done for other in room.legs.values()):
            self._conclude(room, "", "")
            self.counters.rooms_sent += 1
            self._events.append(RoomSent(room.room))

    def _on_abort(self, peer: SendPeer, lane: SendLane, frame: Abort) -> None:
        self._reply(lane, Aborted(frame.room, frame.attempt))
        room, leg = self._find_leg(peer, frame.room, frame.attempt)
        if room is None or leg is None:
            self._ended_legs.put((peer.session, frame.room, frame.attempt), frame)
            return
        self._end_leg(leg, frame)
        self._fail_room(room, frame.reason, reason_text(frame.text))

    def _find_leg(
        self, peer: SendPeer, room: int, attempt: int
    ) -> tuple[SendRoom | None, SendLeg | None]:
        state = self._rooms.get(room)
        leg = state.legs.get(peer.node_id) if state is not None else None
        if leg is None or leg.session != peer.session or leg.attempt != attempt or not leg.live:
            return state, None
        return state, leg
