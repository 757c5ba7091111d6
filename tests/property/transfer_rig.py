"""A sender and a receiver machine joined by lanes that a test delivers, kills and delays at will.

Both sides reuse memory the moment a room ends: source items are scribbled over, and destination
items must never change again.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from prfaas.errors import TransferError
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
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
from prfaas.wire import Chunk, Decoder, Frame, encode

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
    finished: bool = False
    sent: str | None = None
    received: str | None = None


class Rig:
    """Every method is one step; steps that are impossible at the moment do nothing."""

    def __init__(self, seed: int, lanes: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.now = 0.0
        self.sender = Sender(
            LAYOUT,
            node_id="p",
            session=1,
            limits=SendLimits(chunk_bytes=9, room_timeout_s=TIMEOUT_S),
        )
        self.receiver = Receiver(
            LAYOUT,
            node_id="d",
            session=2,
            limits=ReceiveLimits(lanes=lanes, room_timeout_s=TIMEOUT_S),
        )
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

    # Steps

    def open_room(self, size: int) -> None:
        sizes = (size % 9, size % 2, 1)
        if any(len(f) < n for f, n in zip(self.free, sizes, strict=True)):
            return
        if any(len(f) < n for f, n in zip(self.source_free, sizes, strict=True)):
            return
        names = [g.name for g in LAYOUT.groups]
        grants = {n: self._take(self.free, i, sizes[i]) for i, n in enumerate(names)}
        source = {n: self._take(self.source_free, i, sizes[i]) for i, n in enumerate(names)}
        self._next += 1
        room = self.rooms[self._next] = RigRoom(self._next, source, grants)
        room.expected = [
            [entry[source[names[i]]].copy() for entry in group]
            for i, group in enumerate(self.source)
        ]
        self.receiver.open_room(
            room.room, address=ADDRESS, grants=grants, prefix_tokens=0, now=self.now
        )
        self.settle()

    def submit(self, pick: int) -> None:
        room = self._pick(pick)
        if room is None or not room.opened or room.finished:
            return
        for name, items in room.source.items():
            start = room.submitted.get(name, 0)
            if start < items.size:
                part = items[start : start + 1 + pick % 4]
                try:
                    self.sender.submit(room.room, group=name, start=start, items=part)
                except TransferError:
                    assert room.sent is not None
                    return
                room.submitted[name] = start + part.size
                return
        try:
            totals = {n: i.size for n, i in room.source.items()}
            self.sender.finish(room.room, totals)
        except TransferError:
            assert room.sent is not None
        room.finished = True
        self.settle()

    def sender_pulls(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is None or not lane.sender_up:
            return
        out = self.sender.next_frame(lane.number)
        if isinstance(out, ChunkOut):
            entry = self.source[out.frame.group][out.frame.entry]
            lane.to_receiver.append((out.frame, entry[out.items].tobytes()))
        elif out is not None:
            lane.to_receiver.append((self._through_bytes(out), b""))

    def receiver_pulls(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is None or not lane.receiver_up:
            return
        frame = self.receiver.next_frame(lane.number)
        if frame is not None:
            lane.to_sender.append(self._through_bytes(frame))

    def sender_reads(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is not None and lane.sender_up and lane.to_sender:
            self.sender.receive(lane.number, lane.to_sender.popleft(), self.now)
            self.settle()

    def receiver_reads(self, pick: int) -> None:
        """Read a frame, or half of a payload, or its other half."""
        lane = self._lane(pick)
        if lane is None or not lane.receiver_up:
            return
        if lane.half_read is not None:
            chunk, data = lane.half_read
            lane.half_read = None
            self._write(lane, chunk, data, second_half=True)
            self.receiver.payload_done(lane.number)
        elif lane.to_receiver:
            frame, data = lane.to_receiver.popleft()
            self.receiver.receive(lane.number, frame)
            if isinstance(frame, Chunk) and lane.receiver_up:
                self._write(lane, frame, data, second_half=False)
                lane.half_read = (frame, data)
        self.settle()

    def kill_at_sender(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is not None and lane.sender_up:
            lane.sender_up = False
            self.sender.lane_closed(lane.number, "reset")
            self.settle()

    def kill_at_receiver(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is not None and lane.receiver_up:
            lane.receiver_up = False
            self.receiver.lane_closed(lane.number, "reset", self.now)
            self.settle()

    def abort_at_sender(self, pick: int) -> None:
        room = self._pick(pick)
        if room is not None:
            self.sender.abort(room.room, "sender_abort", "", self.now)
            self.settle()

    def abort_at_receiver(self, pick: int) -> None:
        room = self._pick(pick)
        if room is not None:
            self.receiver.abort(room.room, "receiver_abort", "")
            self.settle()

    def wait(self, pick: int) -> None:
        self.now += 0.01 * pick
        self.tick()

    def tick(self) -> None:
        for address, number in self.receiver.take_dials(self.now):
            self._next += 1
            self.receiver.lane_dialing(self._next, address, number)
            self.sender.lane_opened(self._next)
            self.lanes[self._next] = RigLane(self._next)
        self.receiver.on_timer(self.now)
        self.sender.on_timer(self.now)
        self.settle()

    def flow(self, pick: int) -> None:
        """Move every lane on by a few steps, so that short scripts get far."""
        self.tick()
        for step in range(1 + pick % 5):
            for index in range(len(self._alive())):
                self.sender_pulls(index)
                self.receiver_reads(index)
                if step % 2:
                    self.receiver_pulls(index)
                    self.sender_reads(index)

    def drain(self) -> None:
        """Notice every death, deliver everything, then let all deadlines pass."""
        for wait_s in (0.0, 5.0, 2 * TIMEOUT_S, 1.0):
            self.now += wait_s
            self.tick()
            for _ in range(3000):
                if not self._deliver_all():
                    break
            else:
                raise AssertionError("the machines talk for ever")

    # Checks

    def check(self) -> None:
        for got, want in zip(self.memory, self.frozen, strict=True):
            for g, w, group in zip(got, want, [None] * len(got), strict=False):
                owned = self._owned(g)
                assert np.array_equal(g[~owned], w[~owned]), group

    def check_end(self) -> None:
        self.check()
        assert self.sender.num_queued_chunks == 0
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
        assert decoded == frame
        return frame

    def _deliver_all(self) -> bool:
        moved = False
        for number, lane in list(self.lanes.items()):
            if lane.sender_up != lane.receiver_up:
                index = [x.number for x in self._alive()].index(number)
                (self.kill_at_sender if lane.sender_up else self.kill_at_receiver)(index)
                moved = True
            if not (lane.sender_up or lane.receiver_up):
                self.lanes.pop(number)
                moved = True
                continue
            index = [x.number for x in self._alive()].index(number)
            self.sender_pulls(index)
            self.receiver_pulls(index)
            if lane.to_sender or lane.to_receiver or lane.half_read:
                moved = True
            self.sender_reads(index)
            if lane.sender_up and lane.receiver_up:
                self.receiver_reads(index)
        return moved

    def _alive(self) -> list[RigLane]:
        return [lane for lane in self.lanes.values() if lane.sender_up or lane.receiver_up]
