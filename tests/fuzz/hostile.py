"""Peers that send anything: bytes from a fuzzer become frames, in any order, for our machines.

A run fails on any exception but `ProtocolError` (and `TransferError` from calls of the owner), on
queues that outgrow their limits, and on a target or source outside of what was granted.
"""

import numpy as np

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer import Entry, Group, Layout, Receiver, Sender
from prfaas.transfer.receiver import ReceiveLimits
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
from prfaas.wire import (
    Abort,
    Aborted,
    Ack,
    Chunk,
    Decoder,
    Done,
    Feature,
    Fin,
    Foreign,
    Frame,
    Hello,
    Open,
    Ping,
    Refuse,
    Welcome,
    encode,
    limits,
)
from prfaas_transport.codec import Codec, join

LAYOUT = Layout((Group("kv", (Entry(4, 16), Entry(8, 16))), Group("aux", (Entry(3, 4),))))
ADDRESS = ("sender", 1)
FEATURES = Feature.DIGESTS | Feature.COMPRESSION
MAX_CONTROL = 32
MAX_CHUNKS = 64
MAX_ROOMS = 4


class Source:
    """Small numbers out of the fuzzer's bytes; zeros once they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self, limit: int) -> int:
        """Return a number below `limit`."""
        value = self._data[self._at] if self else 0
        self._at += 1
        return value % limit

    def odd(self, usual: int) -> int:
        """Return `usual`, now and then something else."""
        value = self.number(16)
        return (usual, 0, limits.U32_MAX, value)[max(0, value - 12)]

    def data(self, size: int) -> bytes:
        """Return the next bytes."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return part


def run_decoder(data: bytes) -> None:
    """Feed bytes to a decoder in cuts of any size."""
    source, decoder = Source(data), Decoder()
    try:
        while source:
            cut = source.data(1 + source.number(200))
            decoder.receive(cut)
            assert decoder.buffered_bytes <= limits.MAX_HELLO_BYTES + limits.HEADER_BYTES + 256
            while (frame := decoder.next_frame()) is not None:
                if isinstance(frame, Chunk):
                    assert decoder.payload_left == frame.payload_bytes
                elif not isinstance(frame, Foreign | Refuse):
                    assert decode_again(frame) == frame
                decoder.take_payload()
            decoder.take_payload()
    except ProtocolError:
        return


def run_payload(data: bytes) -> None:
    """Decode an encoded payload; it may say what it likes."""
    source = Source(data)
    width = (1, 2, 4)[source.number(3)]
    plain_bytes = 1 + source.number(256) + 256 * source.number(4)
    try:
        planes = Codec().decode(memoryview(source.data(len(data))), plain_bytes, width)
    except ProtocolError:
        return
    out = bytearray(plain_bytes)
    join(planes, memoryview(out))
    assert sum(map(len, planes)) == plain_bytes


def decode_again(frame: Frame) -> Frame | None:
    """Return what becomes of a frame that is encoded and decoded."""
    decoder = Decoder()
    decoder.receive(encode(frame))
    return decoder.next_frame()


def frame_of(source: Source) -> Frame:
    """Return a frame that looks valid, of few rooms so that they meet."""
    room, attempt = source.number(6), source.number(4)
    group = source.number(3)
    entry, start, count = source.number(3), source.number(20), 1 + source.number(6)
    sizes = LAYOUT.groups[group % 2].entries
    item_bytes = sizes[entry % len(sizes)].item_bytes
    counts = (source.odd(8), source.odd(1))[: 3 - source.number(9) // 8 - 1]
    plain_bytes = max(1, source.odd(count * item_bytes))
    encoding = (0, 0, 0, 0, 1, 2, 4)[source.number(7)]
    chunk = Chunk(
        room,
        attempt,
        source.number(80),
        group,
        entry,
        start,
        count,
        max(1, plain_bytes - 1) if encoding else plain_bytes,
        plain_bytes if encoding else 0,
        digest=source.number(2),
        encoding=encoding,
    )
    digest, groups = LAYOUT.digest(), LAYOUT.wire_groups()
    frames: tuple[Frame, ...] = (
        chunk,
        chunk,
        Open(room, attempt, source.odd(60_000), 0, counts, source.number(2), b"x"),
        Open(room, attempt, 60_000, 0, (8, 1), source.number(2)),
        Fin(room, attempt, counts),
        Fin(room, attempt, (8, 1)),
        Ack(room, attempt, tuple(source.number(80) for _ in range(1 + source.number(5)))),
        Done(room, attempt),
        Abort(room, attempt, "hostile", ""),
        Aborted(room, attempt),
        Hello("d", source.number(3), source.number(3), 4, digest, groups, source.number(4)),
        Hello("e", 1, 0, 1, digest[::-1], groups[: source.number(3)]),
        Welcome("p", source.number(3), source.number(4)),
        Refuse("no", ""),
        Ping(1),
        Foreign(source.number(256)),
    )
    return frames[source.number(len(frames))]


def run_sender(data: bytes) -> None:
    """Let hostile receivers meet a sender whose owner goes on with its work."""
    source = Source(data)
    bounds = SendLimits(
        chunk_bytes=16,
        max_queued_chunks=MAX_CHUNKS,
        max_rooms=MAX_ROOMS,
        max_peers=2,
        max_control_frames=MAX_CONTROL,
    )
    machine = Sender(LAYOUT, node_id="p", session=1, limits=bounds, features=FEATURES)
    lanes: set[int] = set()
    now, number = 0.0, 0
    while source:
        step = source.number(8)
        if step == 0 or not lanes:
            number += 1
            lanes.add(number)
            machine.lane_opened(number)
            hello = Hello("d", 1, 0, 4, LAYOUT.digest(), LAYOUT.wire_groups(), 1)
            _receive_at_sender(machine, lanes, number, hello, now)
        lane = sorted(lanes)[source.number(len(lanes))] if lanes else 0
        if lane and step in (1, 2, 3):
            _receive_at_sender(machine, lanes, lane, frame_of(source), now)
        elif lane and step == 4:
            _pull_from_sender(machine, lane)
        elif lane and step == 5 and source.number(8) == 0:
            lanes.discard(lane)
            machine.lane_closed(lane, "reset")
        elif step == 6:
            _own_sender(machine, source, now)
        else:
            now += source.number(64) / 4
            machine.on_timer(now)
        machine.take_events()
        lanes -= {dead for dead, _ in _close_dead(machine)}
        _check_sender(machine)


def _close_dead(machine: Sender) -> list[tuple[int, str]]:
    dead = machine.take_dead_lanes()
    for lane, reason in dead:
        machine.lane_closed(lane, reason)
    return dead


def _receive_at_sender(
    machine: Sender, lanes: set[int], lane: int, frame: Frame, now: float
) -> None:
    try:
        machine.receive(lane, frame, now)
    except ProtocolError:
        lanes.discard(lane)
        machine.lane_closed(lane, "protocol_error")


def _pull_from_sender(machine: Sender, lane: int) -> None:
    out = machine.next_frame(lane)
    if isinstance(out, ChunkOut):
        assert out.leg.live
        assert out.items.size == out.frame.count
        assert out.frame.start + out.frame.count <= out.leg.grants[out.frame.group]
        assert 0 <= out.items.min() <= out.items.max() < 16


def _own_sender(machine: Sender, source: Source, now: float) -> None:
    room, what = source.number(6), source.number(6)
    try:
        if what == 0:
            machine.abort(room, "owner", "", now)
        elif what == 1:
            machine.finish(room, {"kv": 8, "aux": 1})
        elif what == 2:
            machine.mark_ready(room, source.number(3))
        elif what == 3:
            machine.forget(room, now)
        elif what == 4:
            machine.submit(room, group="aux", start=0, items=np.arange(1))
        else:
            ready = (None, 0, 1, 2)[source.number(4)]
            machine.submit(room, group="kv", start=0, items=np.arange(8), ready=ready)
    except TransferError:
        return


def _check_sender(machine: Sender) -> None:
    assert 0 <= machine.num_queued_chunks <= MAX_CHUNKS
    assert len(machine._rooms) <= MAX_ROOMS
    assert len(machine._peers) <= 2
    assert machine._traffic.foreground_bytes >= 0
    for peer in machine._peers.values():
        assert len(peer.control) <= MAX_CONTROL
        assert peer.background_bytes >= 0
        assert peer.backlog_bytes >= 0
    assert all(len(lane.control) <= MAX_CONTROL + 1 for lane in machine._lanes.values())


def run_receiver(data: bytes) -> None:
    """Let a hostile sender meet a receiver that opens and aborts rooms."""
    source = Source(data)
    bounds = ReceiveLimits(lanes=2, max_rooms=MAX_ROOMS, max_control_frames=MAX_CONTROL)
    machine = Receiver(LAYOUT, node_id="d", session=1, limits=bounds, features=FEATURES)
    rig = _ReceiverRig(machine)
    while source:
        step = source.number(8)
        rig.dial()
        if step == 0:
            rig.own(source)
        elif step == 1 and source.number(8) == 0:
            rig.lose(source)
        elif step == 2:
            rig.pull(source)
        elif step == 3:
            rig.now += source.number(64) / 4
            machine.on_timer(rig.now)
        else:
            rig.take(source)
        rig.check()


def count_bytes(chunk: Chunk) -> int:
    """Return what the items of a chunk are in memory: what its payload must decode to."""
    return chunk.count * LAYOUT.groups[chunk.group].entries[chunk.entry].item_bytes


class _ReceiverRig:
    """A receiver, its lanes, and the items of its rooms that are open."""

    def __init__(self, machine: Receiver) -> None:
        self.machine = machine
        self.now = 0.0
        self.lanes: set[int] = set()
        self.granted: dict[int, set[int]] = {}
        self._number = 0

    def dial(self) -> None:
        """Make the lanes that are due; most are welcome."""
        for address, number in self.machine.take_dials(self.now):
            self._number += 1
            self.machine.lane_dialing(self._number, address, number)
            self.lanes.add(self._number)
            self._receive(self._number, Welcome("p", 1, (FEATURES, Feature.DIGESTS)[number % 2]))

    def own(self, source: Source) -> None:
        """What the owner may do."""
        room = source.number(6)
        items = np.arange(8, dtype=np.int64) + source.number(8)
        try:
            if source.number(4):
                self.machine.open_room(
                    room,
                    address=ADDRESS,
                    grants={"kv": items, "aux": items[:1] % 4},
                    prefix_tokens=0,
                    now=self.now,
                )
                self.granted[room] = set(items.tolist())
            else:
                self.machine.abort(room, "out_of_memory", "")
        except TransferError:
            return

    def lose(self, source: Source) -> None:
        """A lane ends."""
        if self.lanes:
            self._close(sorted(self.lanes)[source.number(len(self.lanes))])

    def pull(self, source: Source) -> None:
        """Send something, on a lane that is still there."""
        if self.lanes:
            self.machine.next_frame(sorted(self.lanes)[source.number(len(self.lanes))])

    def take(self, source: Source) -> None:
        """Receive a frame, and the payload of a chunk."""
        if not self.lanes:
            return
        lane, frame = sorted(self.lanes)[source.number(len(self.lanes))], frame_of(source)
        if not self._receive(lane, frame) or not isinstance(frame, Chunk):
            return
        target = self.machine.payload_target(lane)
        if target is not None:
            chunk, items = target
            assert chunk == frame
            assert items.size == chunk.count
            assert chunk.group == 1 or set(items.tolist()) <= self.granted[chunk.room]
            assert self.machine.is_target_live(lane)
            assert chunk.plain_bytes == count_bytes(chunk)
        try:
            self.machine.payload_done(lane, source.number(2))
        except ProtocolError:
            self._close(lane)

    def check(self) -> None:
        """Close what the machine gave up; nothing has outgrown its limit."""
        self.machine.take_events()
        for lane, _ in self.machine.take_dead_lanes():
            self._close(lane)
        assert len(self.machine._rooms) <= MAX_ROOMS
        for peer in self.machine._peers.values():
            assert len(peer.control) <= MAX_CONTROL
            assert all(len(lane.control) <= MAX_CONTROL + 1 for lane in peer.lanes.values())
            assert all(lane.num_acks <= MAX_CONTROL + 1 for lane in peer.lanes.values())

    def _receive(self, lane: int, frame: Frame) -> bool:
        try:
            self.machine.receive(lane, frame)
        except ProtocolError:
            self._close(lane)
        for dead, _ in self.machine.take_dead_lanes():
            self._close(dead)
        return lane in self.lanes

    def _close(self, lane: int) -> None:
        self.lanes.discard(lane)
        self.machine.lane_closed(lane, "closed", self.now)
