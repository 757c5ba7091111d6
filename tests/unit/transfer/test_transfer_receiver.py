"""The receiver machine, frame by frame."""

import numpy as np
import pytest
from receiver_rig import ALL, AT, FIN, LAYOUT, chunk, connected, dial, drain, opened, put, receiver

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer import (
    PeerLost,
    PeerUp,
    Receiver,
    ReceiverGuard,
    RoomFailed,
    RoomReceived,
)
from prfaas.transfer.receiver import ReceiveLimits
from prfaas.wire import (
    Abort,
    Aborted,
    Ack,
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


def test_chunks_go_to_the_granted_items() -> None:
    machine = opened()
    machine.receive(1, chunk(0, 0, 0, 1, 2))
    target = machine.payload_target(1)
    assert target is not None
    assert target[1].tolist() == [6, 9]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
@pytest.mark.parametrize("fin_first", [True, False])
def test_room_is_received_when_all_is_there_and_fin_agrees(
    order: tuple[int, ...], fin_first: bool
) -> None:
    machine = opened()
    if fin_first:
        machine.receive(2, FIN)
    for index in order:
        assert machine.take_events() == []
        assert put(machine, 1, ALL[index])
    if not fin_first:
        assert machine.take_events() == []
        machine.receive(2, FIN)
    assert machine.take_events() == [RoomReceived(7)]
    assert drain(machine, 1) == [Done(7, 1), Ack(7, 1, order)]


def test_acks_go_out_on_the_chunks_lane() -> None:
    machine = opened()
    put(machine, 1, ALL[0])
    put(machine, 2, ALL[1])
    assert drain(machine, 2) == [Ack(7, 1, (1,))]
    assert drain(machine, 1) == [Ack(7, 1, (0,))]


def test_duplicates_are_discarded_and_acknowledged() -> None:
    machine = opened()
    assert put(machine, 1, ALL[0])
    assert not put(machine, 2, ALL[0])
    assert drain(machine, 2) == [Ack(7, 1, (0,))]


def test_nothing_is_written_once_the_room_is_over() -> None:
    machine = opened()
    machine.receive(1, ALL[0])
    assert machine.is_target_live(1)
    machine.abort(7, "gone", "")
    assert not machine.is_target_live(1)
    assert machine.payload_target(1) is None
    machine.payload_done(1)
    assert not put(machine, 1, ALL[1])
    assert machine.take_events() == [RoomFailed(7, "gone", "")]
    assert drain(machine, 1) == [Abort(7, 1, "gone", ""), Ack(7, 1, (0, 1))]


def test_completion_by_one_lane_stops_the_duplicate_on_another() -> None:
    machine = opened()
    machine.receive(2, ALL[0])
    machine.receive(1, FIN)
    for each in ALL:
        put(machine, 1, each)
    assert machine.take_events() == [RoomReceived(7)]
    assert not machine.is_target_live(2)


@pytest.mark.parametrize("totals", [(2, 1), (4, 1), (3, 0)])
def test_fin_mismatch_fails_the_room(totals: tuple[int, int]) -> None:
    machine = opened()
    machine.receive(1, Fin(7, 1, totals))
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "count_mismatch"
    assert isinstance(drain(machine, 1)[0], Abort)


def test_chunk_beyond_the_grant_fails_the_room_and_writes_nothing() -> None:
    machine = opened()
    assert not put(machine, 1, chunk(0, 0, 0, 2, 2))
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "count_mismatch"


@pytest.mark.parametrize(
    "frame",
    [
        Chunk(7, 1, 0, 2, 0, 0, 1, 10),
        Chunk(7, 1, 0, 0, 2, 0, 1, 10),
        Chunk(7, 1, 0, 0, 0, 0, 2, 10),
        Fin(7, 1, (3,)),
        Done(7, 1),
        Open(7, 1, 1, 0, (1, 1)),
        Welcome("p", 9),
    ],
    ids=repr,
)
def test_frames_out_of_place_close_the_lane(frame: Frame) -> None:
    machine = opened()
    with pytest.raises(ProtocolError):
        machine.receive(1, frame)


def test_frames_before_welcome_close_the_lane() -> None:
    machine = receiver()
    machine.connect(AT, 0.0)
    dial(machine, 1, 2)
    with pytest.raises(ProtocolError):
        machine.receive(1, ALL[0])


def test_empty_grants_complete_with_fin() -> None:
    machine = connected()
    machine.open_room(8, address=AT, grants={}, prefix_tokens=0, now=0.0)
    machine.receive(1, Fin(8, 1, (0, 0)))
    assert machine.take_events() == [RoomReceived(8)]


def test_foreign_room_is_answered_once() -> None:
    machine = opened()
    for number in range(3):
        assert not put(machine, 1, Chunk(99, 4, number, 0, 0, 0, 1, 10))
    frames = drain(machine, 1)
    assert [f for f in frames if isinstance(f, Abort)] == [
        Abort(99, 4, "unknown_room", "this receiver has not opened it")
    ]


def test_another_attempt_writes_nothing() -> None:
    machine = opened()
    assert not put(machine, 1, Chunk(7, 2, 0, 0, 0, 0, 1, 10))
    assert machine.take_events() == []


def test_another_peer_cannot_write_to_the_room() -> None:
    machine = opened()
    other = ("10.0.0.2", 5000)
    machine.connect(other, 0.0)
    dial(machine, 11, 12)
    machine.receive(11, Welcome("q", 4))
    assert not put(machine, 11, ALL[0])
    machine.receive(11, Abort(7, 1, "evil", ""))
    assert machine.take_events() == [PeerUp(other, "q", 4)]


def test_repeated_fin_of_a_received_room_is_answered_with_done() -> None:
    machine = opened()
    machine.receive(1, FIN)
    for each in ALL:
        put(machine, 1, each)
    drain(machine, 1)
    machine.receive(2, FIN)
    assert drain(machine, 2) == [Done(7, 1)]


def test_dead_lane_repeats_open_and_is_redialled_with_backoff() -> None:
    machine = opened()
    machine.lane_closed(1, "reset", 1.0)
    assert drain(machine, 2) == [Open(7, 1, 59_000, 2, (3, 1))]
    assert machine.take_dials(1.0) == []
    machine.on_timer(1.0)
    waits = []
    now = 1.0
    for lane in range(20, 30):
        at = min(slot_s for slot_s in [machine.next_timer()] if slot_s is not None)
        waits.append(round(at - now, 3))
        now = at
        dial(machine, lane, now=now)
        machine.lane_closed(lane, "refused", now)
        machine.on_timer(now)
    assert waits[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
    assert waits[-1] == 2.0
    assert machine.take_events() == []


def test_all_lanes_gone_fails_the_rooms_then_the_peer_and_a_fresh_dial_is_immediate() -> None:
    machine = opened()
    machine.lane_closed(1, "reset", 1.0)
    machine.lane_closed(2, "reset", 1.0)
    failed, lost = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "lanes_lost"
    assert lost == PeerLost("p", "lanes_lost", AT)
    assert machine.take_dials(1.0) == []
    machine.connect(AT, 1.0)
    assert machine.take_dials(1.0) == [(AT, 0), (AT, 1)]


def test_a_fresh_connection_is_a_new_session() -> None:
    machine = receiver()
    sessions = []
    for lane in (1, 3):
        machine.connect(AT, 0.0)
        machine.lane_dialing(lane, AT, 0)
        hello = machine.next_frame(lane)
        assert isinstance(hello, Hello)
        sessions.append(hello.session)
        machine.disconnect(AT)
    assert sessions[0] != sessions[1]


def test_never_connected_fails_when_the_last_dial_failed() -> None:
    machine = receiver()
    machine.open_room(7, address=AT, grants={}, prefix_tokens=0, now=0.0)
    dial(machine, 1, 2)
    machine.lane_closed(1, "refused", 0.0)
    assert machine.take_events() == []
    machine.lane_closed(2, "refused", 0.0)
    failed, lost = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "connect_failed"
    assert lost == PeerLost("", "connect_failed", AT)


def test_refusal_ends_the_peer_with_the_senders_reason() -> None:
    machine = receiver()
    machine.open_room(7, address=AT, grants={}, prefix_tokens=0, now=0.0)
    dial(machine, 1, 2)
    machine.receive(1, Refuse("layout_mismatch", "kv: 2 entries here, 1 there"))
    failed, lost = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "layout_mismatch"
    assert "2 entries" in failed.detail
    assert isinstance(lost, PeerLost)
    assert sorted(machine.take_dead_lanes()) == [(1, "layout_mismatch"), (2, "layout_mismatch")]


def test_a_sender_of_another_version_ends_the_peer_with_that_reason() -> None:
    machine = receiver()
    machine.connect(AT, 0.0)
    dial(machine, 1, 2)
    machine.receive(1, Foreign(3))
    assert machine.take_events() == [PeerLost("", "version_mismatch", AT)]


def test_features_that_were_not_offered_close_the_lane() -> None:
    machine = receiver()
    machine.connect(AT, 0.0)
    dial(machine, 1, 2)
    with pytest.raises(ProtocolError):
        machine.receive(1, Welcome("p", 9, features=1))


def test_guard_shows_and_asks() -> None:
    guard = ReceiverGuard(
        greet=lambda hello: f"{hello.lane}".encode(),
        trust=lambda hello, welcome: welcome.auth == b"re" + hello.auth,
        capability=lambda us, sender, frame: repr((us, sender, frame.room)).encode(),
    )
    limits = ReceiveLimits(lanes=2)
    machine = Receiver(LAYOUT, node_id="d", session=100, limits=limits, guard=guard)
    machine.connect(AT, 0.0)
    for lane, (address, number) in zip((1, 2), machine.take_dials(0.0), strict=True):
        machine.lane_dialing(lane, address, number)
        assert machine.next_frame(lane).auth == f"{number}".encode()  # type: ignore[union-attr]
    machine.receive(2, Welcome("p", 9, auth=b"re1"))
    machine.open_room(
        7, address=AT, grants={}, prefix_tokens=0, now=0.0, priority=Priority.BACKGROUND
    )
    opened = machine.next_frame(2)
    assert opened == Open(7, 1, 300_000, 0, (0, 0), 1, b"(('d', 101), ('p', 9), 7)")
    machine.receive(1, Welcome("p", 9, auth=b"wrong"))
    assert machine.take_events() == [PeerUp(AT, "p", 9)]
    assert [lane for lane, _ in machine.take_dead_lanes()] == [1]
    assert machine.next_frame(1) is None


def test_a_first_sender_without_the_secret_is_lost() -> None:
    guard = ReceiverGuard(trust=lambda hello, welcome: False)
    limits = ReceiveLimits(lanes=2)
    machine = Receiver(LAYOUT, node_id="d", session=100, limits=limits, guard=guard)
    machine.connect(AT, 0.0)
    dial(machine, 1, 2)
    machine.receive(1, Welcome("p", 9))
    assert machine.take_events() == [PeerLost("", "auth_failed", AT)]


def test_session_change_loses_the_peer() -> None:
    machine = opened()
    machine.lane_closed(2, "reset", 0.0)
    dial(machine, 3, now=1.0)
    machine.receive(3, Welcome("p", 10))
    assert [type(e) for e in machine.take_events()] == [RoomFailed, PeerLost]
    assert {lane for lane, _ in machine.take_dead_lanes()} == {1, 3}


def test_sender_abort_fails_the_room_and_is_answered() -> None:
    machine = opened()
    machine.receive(2, Abort(7, 1, "prefill_failed", "no memory"))
    assert machine.take_events() == [RoomFailed(7, "prefill_failed", "no memory")]
    assert drain(machine, 2) == [Aborted(7, 1)]


def test_deadline_fails_the_room() -> None:
    machine = opened()
    machine.on_timer(60.0)
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "deadline"


def test_open_room_refuses_doubles_bad_items_and_too_many() -> None:
    machine = opened(max_rooms=2)

    def again(room: int, items: list[int]) -> None:
        grants = {"kv": np.array(items, dtype=np.int64)}
        machine.open_room(room, address=AT, grants=grants, prefix_tokens=0, now=0.0)

    with pytest.raises(TransferError, match="room_exists"):
        again(7, [0])
    with pytest.raises(TransferError, match="bad_items"):
        again(8, [100])
    again(8, [0])
    with pytest.raises(TransferError, match="too_many_rooms"):
        again(9, [0])
    machine.abort(7, "x", "")
    again(7, [1])


def test_unread_acks_close_the_lane() -> None:
    machine = opened(max_control_frames=4)
    for _ in range(4):
        put(machine, 1, ALL[0])
    with pytest.raises(ProtocolError):
        put(machine, 1, ALL[0])


def test_many_acks_are_split() -> None:
    machine = opened()
    for number in range(2500):
        put(machine, 1, Chunk(7, 1, number, 0, 0, 0, 1, 10))
    sizes = [len(f.chunks) for f in drain(machine, 1) if isinstance(f, Ack)]
    assert sizes == [1024, 1024, 452]


def test_describe_is_plain() -> None:
    import json

    stats = json.loads(json.dumps(opened().describe()))
    assert stats["peers"]["10.0.0.1:5000"]["lanes"] == 2
