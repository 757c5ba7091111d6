"""The receiver machine against damaged, repeated and unread payload."""

from dataclasses import replace

import numpy as np
import pytest
from receiver_rig import ALL, AT, FIN, LAYOUT, chunk, connected, dial, drain, opened, put

from prfaas.errors import ProtocolError
from prfaas.transfer import (
    Receiver,
    RoomFailed,
    RoomReceived,
)
from prfaas.transfer.receiver import ReceiveLimits
from prfaas.wire import (
    Abort,
    Feature,
    Welcome,
)


def with_digests() -> Receiver:
    machine = Receiver(
        LAYOUT,
        node_id="d",
        session=100,
        limits=ReceiveLimits(lanes=2),
        features=Feature.DIGESTS,
    )
    machine.open_room(
        7,
        address=AT,
        grants={"kv": np.array([5, 6, 9]), "aux": np.array([3])},
        prefix_tokens=0,
        now=0.0,
    )
    dial(machine, 1, 2)
    for lane in (1, 2):
        machine.receive(lane, Welcome("p", 9, Feature.DIGESTS))
    machine.take_events()
    drain(machine, 1)
    return machine


def test_a_damaged_chunk_closes_the_lane_and_comes_again() -> None:
    machine = with_digests()
    good = replace(ALL[0], digest=5)
    machine.receive(1, good)
    assert machine.wants_digest(1)
    with pytest.raises(ProtocolError, match="digest_mismatch: room 7, chunk 0"):
        machine.payload_done(1, digest=6)
    machine.lane_closed(1, "damaged", 0.0)
    assert machine.take_events() == []
    machine.receive(2, good)
    assert machine.payload_target(2) is not None
    machine.payload_done(2, digest=5)
    for each in ALL[1:]:
        put(machine, 2, each)
    machine.receive(2, FIN)
    assert machine.take_events() == [RoomReceived(7)]
    assert machine.describe()["chunks_damaged_total"] == 1


def test_a_room_whose_chunks_are_damaged_three_times_fails() -> None:
    machine = with_digests()
    for time in range(3):
        assert machine.take_events() == []
        machine.receive(2, replace(ALL[time], digest=5))
        with pytest.raises(ProtocolError):
            machine.payload_done(2, digest=6)
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "digest_mismatch"
    assert machine.next_frame(1) == Abort(7, 1, "digest_mismatch", failed.detail)


def test_damage_to_items_that_were_in_place_fails_the_room() -> None:
    machine = with_digests()
    put(machine, 1, chunk(0, 0, 0, 1, 1))
    machine.receive(1, replace(chunk(1, 0, 0, 0, 3), digest=5))
    with pytest.raises(ProtocolError):
        machine.payload_done(1, digest=6)
    (failed,) = machine.take_events()
    assert isinstance(failed, RoomFailed)
    assert failed.reason == "digest_mismatch"


def test_digests_are_asked_for_only_where_agreed_and_given() -> None:
    machine = with_digests()
    machine.receive(1, ALL[0])
    assert not machine.wants_digest(1)
    machine.payload_done(1)
    plain = opened()
    plain.receive(1, replace(ALL[0], digest=5))
    assert not plain.wants_digest(1)
    plain.payload_done(1)


def test_a_resend_takes_the_items_away_from_the_lane_that_the_sender_lost() -> None:
    machine = opened()
    machine.receive(1, ALL[0])
    machine.receive(2, replace(ALL[0], chunk=9))
    assert not machine.is_target_live(1)
    assert machine.is_target_live(2)
    assert machine.take_dead_lanes() == [(1, "superseded")]


def test_lanes_that_read_different_items_do_not_disturb_each_other() -> None:
    machine = opened()
    machine.receive(1, chunk(0, 0, 0, 0, 2))
    machine.receive(2, chunk(1, 0, 0, 2, 1))
    assert machine.is_target_live(1)
    assert machine.take_dead_lanes() == []


def test_an_encoding_that_was_not_agreed_on_closes_the_lane() -> None:
    machine = with_digests()
    with pytest.raises(ProtocolError, match="was not agreed"):
        machine.receive(1, replace(ALL[0], payload_bytes=7, encoding=1))


def test_a_peer_that_takes_no_control_frames_is_given_up_and_nothing_grows() -> None:
    machine = connected(max_control_frames=8)
    for room in range(20):
        machine.open_room(room, address=AT, grants={}, prefix_tokens=0, now=0.0)
    assert {lane for lane, _ in machine.take_dead_lanes()} == {1, 2}
    assert len(drain(machine, 1)) == 8
