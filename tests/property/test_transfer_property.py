"""Random interleavings of two machines: either the bytes are right, or the room failed."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transfer_rig import Rig

from prfaas.errors import ProtocolError
from prfaas.transfer.intervals import IntervalSet
from prfaas.wire import Decoder, Done, Frame, encode
from prfaas.wire.frames import Abort, Ack, Chunk, Fin, Open, Ping

TRANSFER = [
    "open_room",
    "submit",
    "submit",
    "mark_ready",
    "mark_ready",
    "flow",
    "flow",
    "flow",
    "sender_pulls",
    "sender_pulls",
    "receiver_pulls",
    "sender_reads",
    "receiver_reads",
    "receiver_reads",
    "wait",
]
FAULTS = [
    "kill_at_sender",
    "kill_at_receiver",
    "abort_at_sender",
    "abort_at_receiver",
]
DAMAGE = ["damage", "damage", "damage", "kill_at_sender"]
DUPLICATES = ["duplicate_to_receiver", "duplicate_to_sender", "kill_at_sender"]
RESTARTS = ["restart_sender", "restart_receiver", "kill_at_sender", "abort_at_receiver"]
SLOW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def steps(names: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Uniform scripts of a seed; hypothesis alone prefers short ones that hardly move a byte."""

    def script(seed: int, length: int) -> list[tuple[str, int]]:
        rng = random.Random(seed)
        return [(rng.choice(names), rng.randrange(41)) for _ in range(length)]

    return st.builds(script, st.integers(0, 2**32), st.integers(1, 150))


def play(rig: Rig, script: list[tuple[str, int]]) -> None:
    for name, pick in script:
        getattr(rig, name)(pick)


def submit_rest(rig: Rig) -> None:
    for index in range(len(rig.rooms)):
        for _ in range(20):
            rig.submit(index)
            rig.mark_ready(index)
            rig.mark_ready(index)


@SLOW
@given(st.integers(0, 2**32), steps(TRANSFER))
def test_without_faults_every_room_arrives(seed: int, script: list[tuple[str, int]]) -> None:
    rig = Rig(seed)
    play(rig, script)
    for _ in range(200):
        rig.now += 0.01
        rig.tick()
        rig._deliver_all()
        submit_rest(rig)
    assert all(r.sent == r.received == "" for r in rig.rooms.values())
    assert not rig.errors
    rig.check_end()


@pytest.mark.parametrize(
    "names",
    [
        [*TRANSFER, *TRANSFER, *FAULTS],
        [*TRANSFER, *TRANSFER, *DAMAGE],
        [*TRANSFER, *TRANSFER, *DUPLICATES],
        [*TRANSFER * 5, *RESTARTS],
        [*TRANSFER * 5, *FAULTS, *DAMAGE, *DUPLICATES, *RESTARTS],
    ],
    ids=["faults", "damage", "duplicates", "restarts", "everything"],
)
@SLOW
@given(st.integers(0, 2**32), st.data())
def test_bytes_are_right_or_the_room_failed(
    names: list[str], seed: int, data: st.DataObject
) -> None:
    rig = Rig(seed, lanes=6)
    play(rig, data.draw(steps(names)))
    submit_rest(rig)
    rig.drain()
    rig.check_end()


@SLOW
@given(st.integers(0, 2**32), steps([*TRANSFER, *TRANSFER, "kill_at_receiver"]))
def test_rooms_survive_lane_deaths_while_a_lane_is_left(
    seed: int, script: list[tuple[str, int]]
) -> None:
    rig = Rig(seed)
    rig.open_room(5)
    for _ in range(4):
        rig.tick()
        rig._deliver_all()
    for name, pick in script:
        up = [lane for lane in rig.lanes.values() if lane.receiver_up and lane.sender_up]
        welcome = sum(1 for lane in up if rig.receiver._lanes[lane.number].welcome)
        if not name.startswith("kill") or welcome >= 3:
            getattr(rig, name)(pick)
    for _ in range(300):
        rig.now += 0.01
        rig.tick()
        rig._deliver_all()
        submit_rest(rig)
    assert all(r.sent == r.received == "" for r in rig.rooms.values())


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_intervals_agree_with_a_set(pairs: list[tuple[int, int]]) -> None:
    held, model = IntervalSet(), set[int]()
    for a, b in pairs:
        start, end = min(a, b), max(a, b)
        assert held.covers(start, end) == (set(range(start, end)) <= model)
        assert held.touches(start, end) == bool(set(range(start, end)) & model)
        assert held.add(start, end) == len(set(range(start, end)) - model)
        model |= set(range(start, end))
        assert len(held) == len(model)


U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
COUNTS = st.lists(U32, max_size=20).map(tuple)
WORD = st.from_regex(r"[a-z0-9_]{1,64}", fullmatch=True)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Open, U64, U32, U32, U32, COUNTS, st.sampled_from([0, 1]), st.binary(max_size=64)),
    st.builds(Fin, U64, U32, COUNTS),
    st.builds(Ack, U64, U32, st.lists(U32, min_size=1, max_size=20).map(tuple)),
    st.builds(Done, U64, U32),
    st.builds(Abort, U64, U32, WORD, st.text(max_size=200)),
    st.builds(Ping, U64),
)


@given(st.lists(FRAMES, max_size=8), st.integers(1, 97))
def test_frames_survive_any_cut_of_the_stream(frames: list[Frame], step: int) -> None:
    stream = b"".join(encode(frame) for frame in frames)
    decoder, got = Decoder(), list[Frame]()
    for at in range(0, len(stream), step):
        decoder.receive(stream[at : at + step])
        while (frame := decoder.next_frame()) is not None:
            got.append(frame)
    assert got == frames


@given(st.binary(max_size=200), st.sampled_from(range(14)), st.booleans())
def test_no_bytes_crash_the_decoder(data: bytes, kind: int, with_header: bool) -> None:
    decoder = Decoder()
    header = b"PF\x02" + bytes([kind]) + len(data).to_bytes(4, "big")
    decoder.receive((header if with_header else b"") + data)
    try:
        while (frame := decoder.next_frame()) is not None:
            if isinstance(frame, Chunk):
                decoder.take_payload()
    except ProtocolError:
        return
    assert np.uint32(decoder.payload_left) == decoder.payload_left
