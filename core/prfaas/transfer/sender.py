"""The sender (prefill side) as a sans-IO machine."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer.events import PeerJoined, PeerLost, RoomFailed, RoomOpened, RoomSent, SendEvent
from prfaas.transfer.guard import SenderGuard
from prfaas.transfer.layout import Items, Layout, mismatch
from prfaas.transfer.machine import LaneId, Machine, TransferLimits, describe_totals
from prfaas.transfer.memo import Memo
from prfaas.transfer.reasons import Reason, reason_text, reason_word
from prfaas.transfer.send_peer import SendLane, SendPeer
from prfaas.transfer.send_room import (
    ChunkOut,
    Conclusion,
    SendLeg,
    SendRoom,
    Submission,
    count_chunks,
)
from prfaas.transfer.send_room import cut_chunks as _cut_chunks
from prfaas.wire import (
    Abort,
    Aborted,
    Ack,
    Done,
    Fin,
    Foreign,
    Frame,
    Hello,
    Open,
    Refuse,
    Welcome,
)
from prfaas.wire.limits import MAX_LANES, VERSION


@dataclass(frozen=True, kw_only=True, slots=True)
class SendLimits(TransferLimits):
    """Bounds of a sender; `max_queued_chunks` counts chunks not yet acknowledged, of all rooms."""

    chunk_bytes: int = 1 << 20
    max_queued_chunks: int = 1 << 16


@dataclass(slots=True)
class SendCounters:
    """Totals since start."""

    rooms_opened: int = 0
    rooms_sent: int = 0
    rooms_failed: Counter[str] = field(default_factory=Counter)
    chunks_sent: int = 0
    chunks_acked: int = 0
    chunks_resent: int = 0
    payload_bytes_sent: int = 0
    lanes_refused: Counter[str] = field(default_factory=Counter)
    rooms_refused: Counter[str] = field(default_factory=Counter)


class Sender(Machine[SendEvent]):
    """Rooms, peers and lanes of one prefill node. See the package docstring for the calling rules.

    `session` must be new for every process start. Peers are told apart by node id; a known node id
    with a new session is a restarted peer, and its old session's rooms fail. `features` are what it
    accepts when a peer offers them, `guard` says whom it trusts.
    """

    limits: SendLimits

    def __init__(
        self,
        layout: Layout,
        *,
        node_id: str,
        session: int,
        limits: SendLimits,
        features: int = 0,
        guard: SenderGuard | None = None,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.node_id = node_id
        self.session = session
        self.limits = limits
        self.counters = SendCounters()
        self.num_queued_chunks = 0
        self._features = features
        self._guard = guard or SenderGuard()
        self._digest = layout.digest()
        self._lanes: dict[LaneId, SendLane] = {}
        self._peers: dict[str, SendPeer] = {}
        self._rooms: dict[int, SendRoom] = {}
        self._concluded: Memo[int, Conclusion] = Memo(4 * limits.max_rooms)
        self._ended_legs: Memo[tuple[int, int, int], Abort] = Memo(4 * limits.max_rooms)

    # Rooms, called by the owner

    def submit(self, room: int, *, group: str, start: int, items: Items) -> None:
        """Queue source items for positions `start ..` of the grant, to every peer of the room.

        Raises: TransferError if the room is unknown, failed or finished, if items or positions
            are out of range, or if the queue is full; then nothing was queued.
        """
        state = self._live_room(room)
        if state.totals is not None:
            raise TransferError(Reason.CLOSED, f"room {room}: submit after finish")
        index = self.layout.index(group)
        submission = Submission(index, start, self.layout.items(index, items))
        legs = [leg for leg in state.legs.values() if leg.live]
        for leg in legs:
            leg.check_range(submission, group)
        num_chunks = self._count_chunks(submission)
        self._check_queue(num_chunks * len(legs), room)
        if submission.items.size:
            state.add(submission)
            for leg in legs:
                self._enqueue(leg, submission, num_chunks)

    def finish(self, room: int, totals: Mapping[str, int]) -> None:
        """Close the room with FIN; `totals` are the items submitted per group name.

        Raises: TransferError if the room is unknown or failed, or if `totals` is not what was
            submitted and granted; in the latter case the room fails.
        """
        state = self._live_room(room)
        counts = self.layout.counts(totals)
        if state.totals is not None:
            return
        problem = self._count_problem(state, counts)
        if problem:
            self._fail_room(state, Reason.COUNT_MISMATCH, problem)
            raise TransferError(Reason.COUNT_MISMATCH, f"room {room}: {problem}")
        state.totals = counts
        for leg in state.legs.values():
            if leg.live:
                self._tell(self._peers[leg.peer], Fin(room, leg.attempt, counts))

    def abort(self, room: int, reason: str, detail: str, now: float) -> None:
        """Fail the room. A room that no peer has opened yet will be refused when it is opened."""
        state = self._rooms.get(room)
        word, text = reason_word(reason), reason_text(detail)
        if state is not None:
            self._fail_room(state, word, text)
        elif self._concluded.get(room) is None:
            until_s = now + self.limits.room_timeout_s
            self._concluded.put(room, Conclusion(word, text, {}, until_s))

    def forget(self, room: int, now: float) -> None:
        """Drop a concluded room (a live one is aborted first).

        That a failed room stays closed to late openers is remembered until `room_timeout_s`.
        """
        if room in self._rooms:
            self.abort(room, Reason.ABORTED, "forgotten", now)
        ended = self._concluded.get(room)
        if ended is None:
            return
        if ended.reason and now < ended.until_s:
            kept = Conclusion(ended.reason, ended.detail, ended.attempts, ended.until_s, True)
            self._concluded.put(room, kept)
        else:
            self._concluded.drop(room)

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
            self._on_ack(state, frame)
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
        chunk = peer.next_chunk()
        if chunk is not None:
            state.in_flight[chunk.key] = chunk
            self.counters.chunks_sent += 1
            self.counters.payload_bytes_sent += chunk.frame.payload_bytes
        return chunk

    def on_timer(self, now: float) -> None:
        """Fail the rooms whose deadline has passed."""
        for room in [r for r in self._rooms.values() if r.deadline_s <= now]:
            self._fail_room(room, Reason.DEADLINE, "the room's deadline passed")
        self._next_timer = min((r.deadline_s for r in self._rooms.values()), default=None)

    def describe(self) -> dict[str, Any]:
        """Return JSON-able counters and gauges."""
        return {
            "rooms_open": len(self._rooms),
            "chunks_queued": self.num_queued_chunks,
            **describe_totals(self.counters),
            "peers": {
                peer.node_id: {"session": peer.session, "lanes": len(peer.lanes)}
                for peer in self._peers.values()
            },
        }

    # Frames

    def _on_hello(self, lane: LaneId, state: SendLane, frame: Hello) -> None:
        if state.peer is not None:
            raise ProtocolError("second HELLO on a lane")
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
            peer = self._peers[frame.node_id] = SendPeer(frame.node_id, frame.session)
            self._events.append(PeerJoined(frame.node_id))
        state.peer = peer
        peer.lanes[lane] = state
        state.features = frame.features & self._features
        state.control.append(Welcome(self.node_id, self.session, state.features, auth))

    def _refuse(self, state: SendLane, refusal: Refuse) -> None:
        state.refused = True
        state.control.append(refusal)
        self.counters.lanes_refused[refusal.reason] += 1

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
            self.counters.rooms_refused[refusal.reason] += 1
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
        room = self._rooms[frame.room] = SendRoom(frame.room, deadline_s)
        self._concluded.drop(frame.room)
        self._wake_at(deadline_s)
        self.counters.rooms_opened += 1
        return room

    def _add_leg(self, room: SendRoom, peer: SendPeer, frame: Open) -> None:
        leg = SendLeg(room.room, frame.attempt, peer.node_id, peer.session, frame.grants)
        room.legs[peer.node_id] = leg
        grants = self.layout.named(frame.grants)
        self._events.append(RoomOpened(room.room, peer.node_id, frame.prefix_tokens, grants))
        try:
            for submission in room.submissions:
                leg.check_range(submission, self.layout.groups[submission.group].name)
                self._enqueue(leg, submission, self._count_chunks(submission))
        except TransferError as error:
            self._fail_room(room, error.reason, error.detail)
            return
        if room.totals is not None:
            self._tell(peer, Fin(room.room, leg.attempt, room.totals))

    def _on_ack(self, lane: SendLane, frame: Ack) -> None:
        for number in frame.chunks:
            chunk = lane.in_flight.pop((frame.room, frame.attempt, number), None)
            if chunk is not None and chunk.leg.live:
                chunk.leg.num_pending -= 1
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
        self._fail_room(room, frame.reason, frame.text)

    def _find_leg(
        self, peer: SendPeer, room: int, attempt: int
    ) -> tuple[SendRoom | None, SendLeg | None]:
        state = self._rooms.get(room)
        leg = state.legs.get(peer.node_id) if state is not None else None
        if leg is None or leg.session != peer.session or leg.attempt != attempt or not leg.live:
            return state, None
        return state, leg

    # State

    def _live_room(self, room: int) -> SendRoom:
        state = self._rooms.get(room)
        if state is not None:
            return state
        ended = self._concluded.get(room)
        if ended is None or ended.forgotten:
            raise TransferError(Reason.UNKNOWN_ROOM, f"room {room} was not opened by a peer")
        if ended.reason:
            raise TransferError(ended.reason, f"room {room}: {ended.detail}")
        raise TransferError(Reason.ROOM_CONCLUDED, f"room {room} was sent already")

    def _count_problem(self, room: SendRoom, totals: tuple[int, ...]) -> str:
        for group, gap in room.missing(totals).items():
            name = self.layout.groups[group].name
            return f"{name}: {totals[group] - gap} items submitted, finish says {totals[group]}"
        for leg in room.legs.values():
            if leg.grants != totals:
                granted = self.layout.named(leg.grants)
                return f"{leg.peer} granted {granted}, sent were {self.layout.named(totals)}"
        return ""

    def _count_chunks(self, submission: Submission) -> int:
        size = submission.items.size
        return count_chunks(self.layout, submission.group, size, self.limits.chunk_bytes)

    def _check_queue(self, num_chunks: int, room: int) -> None:
        if self.num_queued_chunks + num_chunks > self.limits.max_queued_chunks:
            text = f"room {room}: {self.num_queued_chunks} chunks wait, {num_chunks} more asked"
            raise TransferError(Reason.QUEUE_FULL, text)

    def _enqueue(self, leg: SendLeg, submission: Submission, num_chunks: int) -> None:
        self._check_queue(num_chunks, leg.room)
        leg.num_pending += num_chunks
        self.num_queued_chunks += num_chunks
        chunks = _cut_chunks(self.layout, leg, submission, self.limits.chunk_bytes)
        self._peers[leg.peer].queue.append(chunks)

    def _end_leg(self, leg: SendLeg, answer: Abort) -> None:
        """Stop reading memory for the leg; `answer` is for an OPEN of it that comes late."""
        if not leg.live:
            return
        leg.live = False
        self.num_queued_chunks -= leg.num_pending
        leg.num_pending = 0
        peer = self._peers[leg.peer]
        peer.purge(leg)
        self._ended_legs.put((peer.session, leg.room, leg.attempt), answer)

    def _fail_room(self, room: SendRoom, reason: str, detail: str) -> None:
        word, text = reason_word(reason), reason_text(detail)
        for leg in room.legs.values():
            if leg.live:
                abort = Abort(room.room, leg.attempt, word, text)
                self._end_leg(leg, abort)
                self._tell_abort(self._peers[leg.peer], abort)
        self._conclude(room, word, text)
        self.counters.rooms_failed[word] += 1
        self._events.append(RoomFailed(room.room, word, text))

    def _conclude(self, room: SendRoom, reason: str, detail: str) -> None:
        del self._rooms[room.room]
        attempts = {leg.peer: (leg.session, leg.attempt) for leg in room.legs.values()}
        until_s = room.deadline_s
        self._concluded.put(room.room, Conclusion(reason, detail, attempts, until_s))

    def _lose_peer(self, peer: SendPeer, reason: str, detail: str) -> None:
        for room in list(self._rooms.values()):
            leg = room.legs.get(peer.node_id)
            if leg is not None and leg.live:
                text = reason_text(f"{peer.node_id}: {detail}")
                self._end_leg(leg, Abort(room.room, leg.attempt, reason, text))
                self._fail_room(room, reason, text)
        del self._peers[peer.node_id]
        for lane in peer.lanes:
            self._lanes.pop(lane, None)
            self._dead_lanes.append((lane, reason))
        self._events.append(PeerLost(peer.node_id, reason))
