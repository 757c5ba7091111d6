"""A sender's rooms and peers, and how they end; `Sender` adds lanes and frames."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from prfaas.errors import TransferError
from prfaas.transfer.compression import CompressionLimits, EntryCodings
from prfaas.transfer.events import PeerLost, RoomFailed, SendEvent
from prfaas.transfer.guard import SenderGuard
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.machine import LaneId, Machine, TransferLimits
from prfaas.transfer.memo import Memo
from prfaas.transfer.reasons import Reason, count_reason, reason_text, reason_word
from prfaas.transfer.room_measures import RoomEnd, RoomMeasures
from prfaas.transfer.schedule import BackgroundLimits, Traffic
from prfaas.transfer.send_peer import SendLane, SendPeer
from prfaas.transfer.send_room import (
    Conclusion,
    SendLeg,
    SendRoom,
    Submission,
    count_chunks,
    cut_chunks,
)
from prfaas.wire import Abort, Fin


@dataclass(frozen=True, kw_only=True, slots=True)
class SendLimits(TransferLimits):
    """Bounds of a sender; `max_queued_chunks` counts chunks not yet acknowledged, of all rooms.

    They may be replaced while it runs; `chunk_bytes` is that of the rooms opened from then on.
    `background` says how much rooms that nobody waits for may send, `compression` when it pays.
    """

    chunk_bytes: int = 1 << 20
    max_queued_chunks: int = 1 << 16
    background: BackgroundLimits = field(default_factory=BackgroundLimits)
    compression: CompressionLimits = field(default_factory=CompressionLimits)


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
    chunks_encoded: int = 0
    chunks_left_plain: int = 0
    encoding_saved_bytes: int = 0
    encode_cpu_s: float = 0.0
    lanes_refused: Counter[str] = field(default_factory=Counter)
    rooms_refused: Counter[str] = field(default_factory=Counter)


class SenderRooms(Machine[SendEvent]):
    """What a sender knows of rooms and peers."""

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
        self.measures = RoomMeasures()
        self.num_queued_chunks = 0
        self._traffic = Traffic(limits.background)
        self._features = features
        self._guard = guard or SenderGuard()
        self._digest = layout.digest()
        self._codings = EntryCodings()
        self._lanes: dict[LaneId, SendLane] = {}
        self._peers: dict[str, SendPeer] = {}
        self._rooms: dict[int, SendRoom] = {}
        self._concluded: Memo[int, Conclusion] = Memo(4 * limits.max_rooms)
        self._ended_legs: Memo[tuple[int, int, int], Abort] = Memo(4 * limits.max_rooms)

    # Rooms, called by the owner

    def submit(
        self,
        room: int,
        *,
        group: str,
        start: int,
        items: Items,
        entries: range | None = None,
        ready: int | None = None,
    ) -> None:
        """Queue source items for positions `start ..` of the grant, to every peer of the room.

        `entries` are those of the group that they are queued for, all by default: a layer's worth
        at a time. With a `ready` token nothing is read before `mark_ready` named it.
        Raises: TransferError if the room is unknown, failed or finished, if items, positions or
            entries are out of range, or if the queue is full; then nothing was queued.
        """
        state = self._live_room(room)
        if state.totals is not None:
            raise TransferError(Reason.CLOSED, f"room {room}: submit after finish")
        index = self.layout.index(group)
        num_entries = len(self.layout.groups[index].entries)
        wanted = range(num_entries) if entries is None else entries
        if wanted.step != 1 or not 0 <= wanted.start < wanted.stop <= num_entries:
            raise TransferError(Reason.BAD_ITEMS, f"{group}: {wanted} of {num_entries} entries")
        submission = Submission(index, start, self.layout.items(index, items), wanted, ready)
        legs = [leg for leg in state.legs.values() if leg.live]
        for leg in legs:
            leg.check_range(submission, group)
        self._check_queue(sum(count_chunks(self.layout, leg, submission) for leg in legs), room)
        if submission.items.size:
            state.add(submission, num_entries)
            for leg in legs:
                self._enqueue(state, leg, submission)

    def mark_ready(self, room: int, token: int) -> None:
        """Say that the items submitted with this token, before or after, may be read and sent.

        A room that has ended is ignored.
        """
        state = self._rooms.get(room)
        if state is None or token in state.ready:
            return
        state.ready.add(token)
        for leg in state.legs.values():
            for submission in leg.waiting.pop(token, ()):
                self._release(leg, submission)

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
        self.advance(now)
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

    def _check_queue(self, num_chunks: int, room: int) -> None:
        if self.num_queued_chunks + num_chunks > self.limits.max_queued_chunks:
            text = f"room {room}: {self.num_queued_chunks} chunks wait, {num_chunks} more asked"
            raise TransferError(Reason.QUEUE_FULL, text)

    def _enqueue(self, room: SendRoom, leg: SendLeg, submission: Submission) -> None:
        num_chunks = count_chunks(self.layout, leg, submission)
        self._check_queue(num_chunks, leg.room)
        leg.num_pending += num_chunks
        self.num_queued_chunks += num_chunks
        if submission.ready is None or submission.ready in room.ready:
            self._release(leg, submission)
        else:
            leg.waiting.setdefault(submission.ready, []).append(submission)

    def _release(self, leg: SendLeg, submission: Submission) -> None:
        chunks = cut_chunks(self.layout, leg, submission)
        self._peers[leg.peer].enqueue(leg, chunks, submission.num_bytes(self.layout))

    def _end_leg(self, leg: SendLeg, answer: Abort) -> None:
        """Stop reading memory for the leg; `answer` is for an OPEN of it that comes late."""
        if not leg.live:
            return
        leg.live = False
        self.num_queued_chunks -= leg.num_pending
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
        count_reason(self.counters.rooms_failed, word)
        self._events.append(RoomFailed(room.room, word, text))

    def _conclude(self, room: SendRoom, reason: str, detail: str) -> None:
        del self._rooms[room.room]
        attempts = {leg.peer: (leg.session, leg.attempt) for leg in room.legs.values()}
        until_s = room.deadline_s
        self._concluded.put(room.room, Conclusion(reason, detail, attempts, until_s))
        self._measure(room, reason)

    def _measure(self, room: SendRoom, reason: str) -> None:
        legs = room.legs.values()
        begun_s = [leg.first_byte_s for leg in legs if leg.first_byte_s is not None]
        end = RoomEnd(
            room=room.room,
            reason=reason,
            is_foreground=room.is_foreground,
            opened_s=room.opened_s,
            first_byte_s=min(begun_s, default=None),
            ended_s=self._now,
            granted_bytes=max((self.layout.num_bytes(leg.grants) for leg in legs), default=0),
        )
        self.measures.note(end)

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
