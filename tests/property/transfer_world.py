"""Two machines whose memory is watched: who may write where, and what must be there at the end.

Both sides reuse memory the moment a room ends: source items are scribbled over, and destination
items must never change again.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import xxhash

from prfaas.errors import ProtocolError
from prfaas.transfer import (
    Entry,
    Group,
    Layout,
    Receiver,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    Sender,
)
from prfaas.transfer.receiver import ReceiveLimits
from prfaas.transfer.sender import SendLimits
from prfaas.wire import Chunk, Decoder, Feature, Frame, encode

LAYOUT = Layout(
    (
        Group("kv", (Entry(3, 40), Entry(5, 40))),
        Group("state.0.mamba", (Entry(16, 8),)),
        Group("aux", (Entry(2, 8),)),
    )
)
ADDRESS = ("sender", 1)
CANARY = 0xEE
TIMEOUT_S = 30.0

Pages = list[list[np.ndarray]]


def pages(fill: int) -> Pages:
    return [
        [np.full((e.num_items, e.item_bytes), fill, np.uint8) for e in g.entries]
        for g in LAYOUT.groups
    ]


@dataclass
class RigLane:
    """One connection: frames on their way, and whether each end has noticed its death."""

    number: int
    to_sender: deque[Frame] = field(default_factory=deque)
    to_receiver: deque[tuple[Frame, bytes]] = field(default_factory=deque)
    half_read: tuple[Chunk, bytes] | None = None
    num_damaged: int = 0
    sender_up: bool = True
    receiver_up: bool = True


@dataclass
class RigRoom:
    """What a room should carry, and how each side saw it end."""

    room: int
    source: dict[str, np.ndarray]
    grants: dict[str, np.ndarray]
    expected: Pages = field(default_factory=list)
    opened: bool = False
    submitted: dict[str, int] = field(default_factory=dict)
    unready: dict[int, tuple[int, range, range]] = field(default_factory=dict)
    finished: bool = False
    sent: str | None = None
    received: str | None = None


class RigWorld:
    """Two machines, their memory and their rooms; `Rig` has the steps."""

    def __init__(self, seed: int, lanes: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.now = 0.0
        self.num_lanes = lanes
        self.session = 0
        self.errors: list[ProtocolError] = []
        self.sender = self._new_sender()
        self.receiver = self._new_receiver()
        self.source = pages(0)
        for group in self.source:
            for entry in group:
                entry[:] = self.rng.integers(0, 200, entry.shape)
        self.memory = pages(CANARY)
        self.frozen = pages(CANARY)
        self.lanes: dict[int, RigLane] = {}
        self.rooms: dict[int, RigRoom] = {}
        self.free = [list(range(g.num_items)) for g in LAYOUT.groups]
        self.source_free = [list(range(g.num_items)) for g in LAYOUT.groups]
        self._next = 0

    # Checks

    def check(self) -> None:
        for got, want in zip(self.memory, self.frozen, strict=True):
            for g, w, group in zip(got, want, [None] * len(got), strict=False):
                owned = self._owned(g)
                assert np.array_equal(g[~owned], w[~owned]), group

    def check_end(self) -> None:
        self.check()
        assert self.sender.num_queued_chunks == 0
        assert self.sender._traffic.foreground_bytes == 0
        for peer in self.sender._peers.values():
            assert peer.background_bytes == peer.backlog_bytes == 0
        for room in self.rooms.values():
            assert room.received is not None
            if room.sent == "":
                assert room.received == "", room
            if room.opened:
                assert room.sent is not None, room

    def settle(self) -> None:
        """What a shell does after every call: close dead lanes, act on events."""
        for number, _ in self.sender.take_dead_lanes():
            self.lanes[number].sender_up = False
        for number, _ in self.receiver.take_dead_lanes():
            self.lanes[number].receiver_up = False
        for event in self.sender.take_events():
            if isinstance(event, RoomOpened):
                self.rooms[event.room].opened = True
            elif isinstance(event, RoomSent | RoomFailed):
                self._end_source(self.rooms[event.room], event)
        for event in self.receiver.take_events():
            if isinstance(event, RoomReceived | RoomFailed):
                self._end_destination(self.rooms[event.room], event)
        self.check()

    # Inside

    def _new_sender(self) -> Sender:
        self.session += 1
        limits = SendLimits(chunk_bytes=9, room_timeout_s=TIMEOUT_S)
        return Sender(
            LAYOUT,
            node_id="p",
            session=self.session,
            limits=limits,
            features=Feature.DIGESTS,
        )

    def _new_receiver(self) -> Receiver:
        self.session += 1000
        limits = ReceiveLimits(lanes=self.num_lanes, room_timeout_s=TIMEOUT_S)
        return Receiver(
            LAYOUT,
            node_id="d",
            session=self.session,
            limits=limits,
            features=Feature.DIGESTS | Feature.COMPRESSION,
        )

    def _submit_part(
        self, room: RigRoom, name: str, start: int, items: np.ndarray, *, is_whole: bool
    ) -> None:
        """Submit at once, or entry by entry, not ready yet."""
        if is_whole:
            self.sender.submit(room.room, group=name, start=start, items=items)
            return
        group = LAYOUT.index(name)
        for entry in range(len(LAYOUT.groups[group].entries)):
            token = 100 * start + 10 * group + entry
            entries, positions = range(entry, entry + 1), range(start, start + items.size)
            self.sender.submit(
                room.room, group=name, start=start, items=items, entries=entries, ready=token
            )
            room.unready[token] = (group, entries, positions)

    def _check_ready(self, frame: Chunk) -> None:
        for group, entries, positions in self.rooms[frame.room].unready.values():
            if group == frame.group and frame.entry in entries:
                assert frame.start not in positions, "sent before it was ready"

    def _payload_done(self, lane: RigLane, data: bytes) -> None:
        try:
            self.receiver.payload_done(lane.number, xxhash.xxh3_64_intdigest(data))
        except ProtocolError as error:
            self._fail_at_receiver(lane, error)

    def _fail_at_receiver(self, lane: RigLane, error: ProtocolError) -> None:
        self.errors.append(error)
        lane.receiver_up = False
        self.receiver.lane_closed(lane.number, "protocol_error", self.now)

    def _end_source(self, room: RigRoom, event: RoomSent | RoomFailed) -> None:
        assert room.sent is None, "a room ends once"
        room.sent = event.reason if isinstance(event, RoomFailed) else ""
        for index, items in enumerate(room.source.values()):
            for entry in self.source[index]:
                entry[items] = self.rng.integers(200, 230, (items.size, entry.shape[1]))
            self.source_free[index] += items.tolist()

    def _end_destination(self, room: RigRoom, event: RoomReceived | RoomFailed) -> None:
        assert room.received is None, "a room ends once"
        room.received = event.reason if isinstance(event, RoomFailed) else ""
        for index, items in enumerate(room.grants.values()):
            for number, entry in enumerate(self.memory[index]):
                if not room.received:
                    assert np.array_equal(entry[items], room.expected[index][number])
                entry[items] = CANARY
                self.frozen[index][number][items] = CANARY
            self.free[index] += items.tolist()

    def _write(self, lane: RigLane, chunk: Chunk, data: bytes, *, second_half: bool) -> None:
        target = self.receiver.payload_target(lane.number)
        assert (target is not None) == self.receiver.is_target_live(lane.number)
        if target is None:
            return
        entry = self.memory[chunk.group][chunk.entry]
        rows = np.frombuffer(data, np.uint8).reshape(chunk.count, -1)
        half = entry.shape[1] // 2
        columns = slice(half, None) if second_half else slice(0, half)
        entry[target[1], columns] = rows[:, columns]

    def _owned(self, entry: np.ndarray) -> np.ndarray:
        owned = np.zeros(len(entry), bool)
        for index, group in enumerate(self.memory):
            if any(entry is e for e in group):
                name = LAYOUT.groups[index].name
                for room in self.rooms.values():
                    if room.received is None:
                        owned[room.grants[name]] = True
        return owned

    def _take(self, free: list[list[int]], group: int, count: int) -> np.ndarray:
        picked = self.rng.permutation(free[group])[:count].astype(np.int64)
        free[group] = [item for item in free[group] if item not in set(picked.tolist())]
        return picked

    def _pick(self, pick: int) -> RigRoom | None:
        rooms = list(self.rooms.values())
        return rooms[pick % len(rooms)] if rooms else None

    def _lane(self, pick: int) -> RigLane | None:
        lanes = [lane for lane in self.lanes.values() if lane.sender_up or lane.receiver_up]
        return lanes[pick % len(lanes)] if lanes else None

    def _through_bytes(self, frame: Frame) -> Frame:
        decoder = Decoder()
        decoder.receive(encode(frame))
        decoded = decoder.next_frame()
        assert decoded == frame, frame
        return frame

    def _alive(self) -> list[RigLane]:
        return [lane for lane in self.lanes.values() if lane.sender_up or lane.receiver_up]
