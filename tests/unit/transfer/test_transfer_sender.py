"""The sender machine, frame by frame."""

from dataclasses import replace

import numpy as np
import pytest

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer import (
    Entry,
    Group,
    Layout,
    PeerJoined,
    PeerLost,
    RoomFailed,
    RoomOpened,
    RoomSent,
    Sender,
    SenderGuard,
)
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
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
    Ping,
    Refuse,
    Welcome,
)

LAYOUT = Layout((Group("kv", (Entry(10, 100), Entry(30, 100))), Group("aux", (Entry(5, 4),))))


def hello(lane: int = 0, session: int = 1, node_id: str = "d", layout: Layout = LAYOUT) -> Hello:
    return Hello(node_id, session, lane, 4, layout.digest(), layout.wire_groups())


def sender(**limits: float) -> Sender:
    merged = {"chunk_bytes": 40, "max_queued_chunks": 1000, "room_timeout_s": 60.0, **limits}
    return Sender(LAYOUT, node_id="p", session=9, limits=SendLimits(**merged))  # type: ignore[arg-type]


def up(machine: Sender, *lanes: int, node_id: str = "d", session: int = 1) -> None:
    for number, lane in enumerate(lanes):
        machine.lane_opened(lane)
        machine.receive(lane, hello(number, session, node_id), 0.0)
        assert machine.next_frame(lane) == Welcome("p", 9)


def opened(**limits: float) -> Sender:
    machine = sender(**limits)
    up(machine, 1, 2)
    machine.receive(1, Open(7, 1, 60_000, 3, (8, 1)), 0.0)
    assert machine.take_events() == [PeerJoined("d"), RoomOpened(7, "d", 3, {"kv": 8, "aux": 1})]
    return machine


def drain(machine: Sender, lane: int) -> list[Frame]:
    frames: list[Frame] = []
    while (frame := machine.next_frame(lane)) is not None:
        frames.append(frame.frame if isinstance(frame, ChunkOut) else frame)
    return frames


def submit_all(machine: Sender) -> None:
    machine.submit(7, group="kv", start=0, items=np.arange(8))
    machine.submit(7, group="aux", start=0, items=np.array([2]))
    machine.finish(7, {"kv": 8, "aux": 1})


def test_items_are_cut_into_chunks_of_at_most_chunk_bytes() -> None:
    machine = opened()
    submit_all(machine)
    fin, *chunks = drain(machine, 1)
    assert fin == Fin(7, 1, (8, 1))
    cut = [(c.group, c.entry, c.start, c.count, c.payload_bytes) for c in chunks]  # type: ignore[union-attr]
    assert cut == [
        (0, 0, 0, 4, 40),
        (0, 0, 4, 4, 40),
        *[(0, 1, at, 1, 30) for at in range(8)],
        (1, 0, 0, 1, 5),
    ]
    assert machine.num_queued_chunks == 11


def test_room_is_sent_when_the_peer_says_done() -> None:
    machine = opened()
    submit_all(machine)
    frames = drain(machine, 1)
    machine.receive(1, Ack(7, 1, tuple(range(len(frames) - 1))), 0.0)
    assert machine.num_queued_chunks == 0
    machine.receive(2, Done(7, 1), 0.0)
    assert machine.take_events() == [RoomSent(7)]
    with pytest.raises(TransferError, match="room_concluded"):
        machine.submit(7, group="kv", start=0, items=np.arange(1))
    machine.forget(7, 0.0)
    with pytest.raises(TransferError, match="unknown_room"):
        machine.submit(7, group="kv", start=0, items=np.arange(1))


def test_a_dead_lane_loses_nothing() -> None:
    machine = opened()
    submit_all(machine)
    first = [f for f in drain(machine, 1) if not isinstance(f, Fin)]
    machine.receive(1, Ack(7, 1, (0, 1)), 0.0)
    machine.lane_closed(1, "reset")
    again = drain(machine, 2)
    assert again == [Fin(7, 1, (8, 1)), *first[2:]]
    assert machine.counters.chunks_resent == 9


def test_all_lanes_gone_fails_the_rooms_then_the_peer() -> None:
    machine = opened()
    machine.lane_closed(1, "reset")
    assert machine.take_events() == []
    machine.lane_closed(2, "reset")
    failed, lost = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "lanes_lost"
    assert lost == PeerLost("d", "lanes_lost")
    with pytest.raises(TransferError, match="lanes_lost"):
        machine.submit(7, group="kv", start=0, items=np.arange(1))


def test_a_new_session_is_a_restarted_peer() -> None:
    machine = opened()
    up(machine, 3, session=2)
    events = machine.take_events()
    assert [type(e) for e in events] == [RoomFailed, PeerLost, PeerJoined]
    assert sorted(machine.take_dead_lanes()) == [(1, "session_changed"), (2, "session_changed")]


def test_layout_mismatch_is_refused_with_the_difference() -> None:
    machine = sender()
    other = Layout((Group("kv", (Entry(10, 100), Entry(31, 100))), LAYOUT.groups[1]))
    machine.lane_opened(1)
    machine.receive(1, hello(layout=other), 0.0)
    refusal = machine.next_frame(1)
    assert isinstance(refusal, Refuse)
    assert (refusal.reason, "kv[1]" in refusal.text) == ("layout_mismatch", True)
    assert machine.take_events() == []
    machine.receive(1, Open(7, 1, 1, 0, (1, 1)), 0.0)
    assert machine.take_events() == []


def test_another_version_is_refused_in_its_own() -> None:
    machine = sender()
    machine.lane_opened(1)
    machine.receive(1, Foreign(1), 0.0)
    refusal = machine.next_frame(1)
    assert isinstance(refusal, Refuse)
    assert (refusal.reason, refusal.version) == ("version_mismatch", 1)
    assert machine.counters.lanes_refused == {"version_mismatch": 1}


@pytest.mark.parametrize(("offered", "accepted"), [(0, 0), (1, 1), (2, 0), (0xFFFFFFFF, 1)])
def test_welcome_names_the_offered_features_that_are_accepted(offered: int, accepted: int) -> None:
    machine = Sender(LAYOUT, node_id="p", session=9, limits=SendLimits(), features=1)
    machine.lane_opened(1)
    machine.receive(1, replace(hello(), features=offered), 0.0)
    assert machine.next_frame(1) == Welcome("p", 9, accepted)


def test_guard_decides_on_lanes_and_rooms() -> None:
    def admit(node_id: str, session: int, frame: Open) -> str:
        return "" if frame.capability == f"{node_id}.{session}".encode() else "capability_invalid"

    guard = SenderGuard(answer=lambda h: b"yes" if h.auth == b"secret" else None, admit=admit)
    machine = Sender(LAYOUT, node_id="p", session=9, limits=SendLimits(), guard=guard)
    machine.lane_opened(1)
    machine.receive(1, hello(), 0.0)
    refusal = machine.next_frame(1)
    assert isinstance(refusal, Refuse)
    assert refusal.reason == "auth_failed"
    machine.lane_opened(2)
    machine.receive(2, replace(hello(), auth=b"secret"), 0.0)
    assert machine.next_frame(2) == Welcome("p", 9, auth=b"yes")
    machine.receive(2, Open(7, 1, 60_000, 0, (1, 1), capability=b"d.2"), 0.0)
    assert machine.next_frame(2) == Abort(7, 1, "capability_invalid", "refused by the sender")
    assert machine.take_events() == [PeerJoined("d")]
    machine.receive(2, Open(7, 1, 60_000, 0, (1, 1), capability=b"d.1"), 0.0)
    assert machine.take_events() == [RoomOpened(7, "d", 0, {"kv": 1, "aux": 1})]
    assert machine.counters.rooms_refused == {"capability_invalid": 1}


def test_lanes_beyond_the_limit_are_refused() -> None:
    machine = sender()
    up(machine, *range(1, 65))
    machine.lane_opened(99)
    machine.receive(99, hello(), 0.0)
    assert isinstance(machine.next_frame(99), Refuse)


@pytest.mark.parametrize(
    "frame", [Fin(7, 1, (8, 1)), Welcome("p", 1), Refuse("x", ""), Open(1, 1, 1, 0, (1,)), hello()]
)
def test_frames_out_of_place_close_the_lane(frame: Frame) -> None:
    machine = opened()
    with pytest.raises(ProtocolError):
        machine.receive(1, frame, 0.0)


def test_frames_before_hello_close_the_lane() -> None:
    machine = sender()
    machine.lane_opened(1)
    with pytest.raises(ProtocolError):
        machine.receive(1, Done(1, 1), 0.0)


def test_unclaimed_room_expires() -> None:
    machine = opened()
    assert machine.next_timer() == 60.0
    machine.on_timer(59.0)
    assert machine.take_events() == []
    machine.on_timer(60.0)
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "deadline"
    assert isinstance(drain(machine, 1)[0], Abort)
    assert machine.next_timer() is None


def test_receiver_abort_fails_the_room_and_is_answered() -> None:
    machine = opened()
    submit_all(machine)
    machine.receive(2, Abort(7, 1, "gone", "client left"), 0.0)
    assert machine.take_events() == [RoomFailed(7, "gone", "client left")]
    assert drain(machine, 2) == [Aborted(7, 1), Fin(7, 1, (8, 1))]
    assert machine.num_queued_chunks == 0


def test_abort_overtaking_open_keeps_the_room_shut() -> None:
    machine = sender()
    up(machine, 1)
    machine.receive(1, Abort(8, 5, "gone", ""), 0.0)
    machine.receive(1, Open(8, 5, 60_000, 0, (8, 1)), 0.0)
    assert machine.take_events() == [PeerJoined("d")]


def test_abort_before_open_refuses_the_room_even_when_forgotten() -> None:
    machine = sender()
    up(machine, 1)
    machine.abort(8, "prefill failed", "no memory", 0.0)
    machine.forget(8, 0.0)
    machine.receive(1, Open(8, 1, 60_000, 0, (8, 1)), 1.0)
    assert drain(machine, 1) == [Abort(8, 1, "prefill_failed", "no memory")]
    machine.receive(1, Open(8, 2, 60_000, 0, (8, 1)), 61.0)
    assert any(isinstance(e, RoomOpened) for e in machine.take_events())


def test_abort_is_repeated_on_another_lane_until_answered() -> None:
    machine = opened()
    machine.abort(7, "x", "", 0.0)
    assert drain(machine, 1) == [Abort(7, 1, "x", "")]
    machine.lane_closed(1, "reset")
    assert drain(machine, 2) == [Abort(7, 1, "x", "")]
    machine.receive(2, Aborted(7, 1), 0.0)
    up(machine, 3)
    machine.lane_closed(2, "reset")
    assert drain(machine, 3) == []


def test_repeated_open_is_the_same_room() -> None:
    machine = opened()
    machine.receive(2, Open(7, 1, 60_000, 3, (8, 1)), 0.0)
    assert machine.take_events() == []


def test_open_repeated_after_done_does_not_open_again() -> None:
    machine = opened()
    submit_all(machine)
    machine.receive(2, Done(7, 1), 0.0)
    machine.receive(1, Open(7, 1, 59_000, 3, (8, 1)), 0.0)
    machine.forget(7, 0.0)
    machine.receive(1, Open(7, 1, 59_000, 3, (8, 1)), 0.0)
    assert machine.take_events() == [RoomSent(7)]


def test_open_repeated_after_the_deadline_does_not_open_again() -> None:
    machine = opened()
    machine.lane_closed(1, "reset")
    machine.lane_closed(2, "reset")
    machine.take_events()
    up(machine, 3)
    machine.receive(3, Open(7, 1, 0, 3, (8, 1)), 99.0)
    assert machine.take_events() == [PeerJoined("d")]
    (answer,) = drain(machine, 3)
    assert isinstance(answer, Abort)
    assert answer.reason == "lanes_lost"


def test_newer_attempt_replaces_the_older_and_gets_what_was_submitted() -> None:
    machine = opened()
    machine.submit(7, group="kv", start=0, items=np.arange(4))
    machine.receive(1, Open(7, 2, 60_000, 0, (8, 1)), 0.0)
    assert [type(e) for e in machine.take_events()] == [RoomOpened]
    chunks = drain(machine, 1)
    assert {c.attempt for c in chunks} == {2}  # type: ignore[union-attr]
    machine.receive(1, Open(7, 1, 60_000, 0, (8, 1)), 0.0)
    assert isinstance(drain(machine, 1)[0], Abort)


def test_every_peer_of_a_room_gets_everything() -> None:
    machine = opened()
    machine.submit(7, group="kv", start=0, items=np.arange(8))
    up(machine, 5, node_id="d2", session=3)
    machine.receive(5, Open(7, 1, 60_000, 0, (8, 1)), 0.0)
    machine.submit(7, group="aux", start=0, items=np.array([0]))
    machine.finish(7, {"kv": 8, "aux": 1})
    assert len(drain(machine, 1)) == len(drain(machine, 5)) == 12
    machine.take_events()
    machine.receive(1, Done(7, 1), 0.0)
    assert machine.take_events() == []
    machine.receive(5, Done(7, 1), 0.0)
    assert machine.take_events() == [RoomSent(7)]


def test_one_peers_failure_is_the_rooms() -> None:
    machine = opened()
    up(machine, 5, node_id="d2", session=3)
    machine.receive(5, Open(7, 1, 60_000, 0, (8, 1)), 0.0)
    machine.receive(5, Abort(7, 1, "x", ""), 0.0)
    assert drain(machine, 1) == [Abort(7, 1, "x", "")]


def test_queue_is_bounded_and_submit_is_all_or_nothing() -> None:
    machine = opened(max_queued_chunks=9)
    with pytest.raises(TransferError, match="queue_full"):
        machine.submit(7, group="kv", start=0, items=np.arange(8))
    assert machine.num_queued_chunks == 0
    machine.submit(7, group="aux", start=0, items=np.array([0]))
    assert machine.num_queued_chunks == 1


@pytest.mark.parametrize(
    ("group", "start", "items"),
    [("kv", 1, range(8)), ("kv", -1, range(2)), ("kv", 0, [100]), ("kv", 0, [-1]), ("no", 0, [0])],
)
def test_submit_out_of_range_is_refused(group: str, start: int, items: list[int]) -> None:
    machine = opened()
    with pytest.raises(TransferError):
        machine.submit(7, group=group, start=start, items=np.array(items))
    assert machine.num_queued_chunks == 0


@pytest.mark.parametrize("totals", [{"kv": 8}, {"kv": 7, "aux": 1}, {"kv": 8, "aux": 2}, {}])
def test_finish_with_wrong_totals_fails_the_room(totals: dict[str, int]) -> None:
    machine = opened()
    machine.submit(7, group="kv", start=0, items=np.arange(8))
    machine.submit(7, group="aux", start=0, items=np.array([2]))
    with pytest.raises(TransferError, match="count_mismatch"):
        machine.finish(7, totals)
    assert [type(e) for e in machine.take_events()] == [RoomFailed]


def test_submit_after_finish_is_refused_and_finish_twice_is_not() -> None:
    machine = opened()
    submit_all(machine)
    machine.finish(7, {"kv": 8, "aux": 1})
    with pytest.raises(TransferError, match="after finish"):
        machine.submit(7, group="kv", start=0, items=np.arange(1))


def test_done_before_finish_fails_the_room() -> None:
    machine = opened()
    machine.receive(1, Done(7, 1), 0.0)
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "protocol_error"


def test_foreign_and_replayed_answers_are_ignored() -> None:
    machine = opened()
    submit_all(machine)
    for frame in (Ack(7, 1, (0, 0, 99)), Ack(8, 1, (0,)), Done(7, 2), Done(99, 1), Aborted(1, 1)):
        machine.receive(1, frame, 0.0)
    assert machine.take_events() == []
    assert machine.num_queued_chunks == 11


def test_too_many_rooms_are_refused() -> None:
    machine = opened(max_rooms=1)
    machine.receive(1, Open(8, 2, 60_000, 0, (8, 1)), 0.0)
    (refusal,) = drain(machine, 1)
    assert isinstance(refusal, Abort)
    assert refusal.reason == "too_many_rooms"


def test_unread_answers_close_the_lane() -> None:
    machine = sender(max_control_frames=8)
    up(machine, 1)
    for room in range(8):
        machine.receive(1, Abort(room, 1, "x", ""), 0.0)
    with pytest.raises(ProtocolError):
        machine.receive(1, Abort(8, 1, "x", ""), 0.0)


def test_ping_is_not_for_the_machine() -> None:
    machine = opened()
    with pytest.raises(ProtocolError):
        machine.receive(1, Ping(1), 0.0)


def test_describe_is_plain() -> None:
    import json

    machine = opened()
    machine.abort(7, "x", "", 0.0)
    stats = json.loads(json.dumps(machine.describe()))
    assert stats["rooms_failed_total"] == {"x": 1}
    assert stats["peers"]["d"]["lanes"] == 2
