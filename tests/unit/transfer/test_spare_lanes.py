"""Lanes that a receiver dials besides: around a stall, and before its only lane ends."""

import numpy as np
from receiver_rig import AT, connected, dial, receiver

from prfaas.transfer import PeerLost, Receiver
from prfaas.transfer.receive_peer import MAX_SPARES
from prfaas.wire import Welcome

STALLED = {1: 0.02, 2: 0.02}


def stalling(now: float = 1.0) -> Receiver:
    """Two lanes that stall, with a room open."""
    machine = connected(lanes=2)
    machine.open_room(7, address=AT, grants={"kv": np.array([1])}, prefix_tokens=0, now=now)
    machine.take_events()
    return machine


def test_a_stall_of_all_lanes_has_another_one_dialled_until_it_is_answered() -> None:
    machine = stalling()
    machine.dial_around(STALLED, {}, 1.0)
    assert machine.take_dials(1.0) == [(AT, 2)]
    machine.lane_dialing(3, AT, 2)
    machine.dial_around(STALLED, {3: 0.09}, 1.2)
    assert machine.take_dead_lanes() == []
    machine.dial_around(STALLED, {3: 0.1}, 1.25)
    assert machine.take_dead_lanes() == [(3, "no answer")]
    machine.lane_closed(3, "no answer", 1.25)
    assert machine.take_dials(1.30) == [(AT, 2)]
    machine.lane_dialing(4, AT, 2)
    machine.receive(4, Welcome("p", 9))
    machine.dial_around(STALLED, {}, 1.4)
    assert machine.take_dials(9.0) == []
    assert not any(isinstance(event, PeerLost) for event in machine.take_events())


def test_a_long_path_gets_the_time_it_takes() -> None:
    machine = stalling()
    stalled = {1: 0.3, 2: 0.2}
    machine.dial_around(stalled, {}, 1.0)
    machine.lane_dialing(3, AT, 2)
    machine.dial_around(stalled, {3: 0.89}, 1.89)
    assert machine.take_dead_lanes() == []
    machine.dial_around(stalled, {3: 0.9}, 1.9)
    assert machine.take_dead_lanes() == [(3, "no answer")]


def test_nothing_is_dialled_while_a_lane_is_well_or_no_room_is_open() -> None:
    machine = stalling()
    machine.dial_around({1: 0.02}, {}, 1.0)
    assert machine.take_dials(9.0) == []
    machine.abort(7, "x", "")
    machine.dial_around(STALLED, {}, 1.0)
    assert machine.take_dials(9.0) == []


def test_spare_lanes_are_few_and_end_with_the_rooms() -> None:
    machine = stalling()
    for lane in range(3, 20):
        machine.dial_around(dict.fromkeys(range(lane), 0.02), {}, 1.0)
        for address, number in machine.take_dials(1.0):
            machine.lane_dialing(lane, address, number)
            machine.receive(lane, Welcome("p", 9))
    assert machine.describe()["peers"]["10.0.0.1:5000"]["lanes"] == 2 + MAX_SPARES
    machine.abort(7, "x", "")
    machine.dial_around({}, {}, 2.0)
    assert len(machine.take_dead_lanes()) == MAX_SPARES
    assert machine.describe()["peers"]["10.0.0.1:5000"]["lanes"] == 2
    for lane in range(3, 20):
        machine.lane_closed(lane, "no more needed", 2.0)
    assert machine.take_dials(9.0) == []


def test_a_spare_lane_stays_if_the_others_are_gone() -> None:
    machine = stalling()
    machine.dial_around(STALLED, {}, 1.0)
    machine.lane_dialing(3, AT, 2)
    machine.receive(3, Welcome("p", 9))
    for lane in (1, 2):
        machine.lane_closed(lane, "silent", 2.0)
    machine.abort(7, "x", "")
    machine.dial_around({}, {}, 2.0)
    assert machine.take_dead_lanes() == []
    assert machine.is_known(AT)


def test_the_only_lane_is_replaced_before_it_ends() -> None:
    machine = receiver(lanes=1)
    machine.connect(AT, 0.0)
    dial(machine, 1)
    machine.receive(1, Welcome("p", 9))
    machine.replace(1, "tired")
    assert machine.take_dead_lanes() == []
    assert machine.take_dials(0.0) == [(AT, 1)]
    machine.lane_dialing(2, AT, 1)
    machine.replace(1, "tired")
    machine.receive(2, Welcome("p", 9))
    assert machine.take_dead_lanes() == [(1, "tired")]
    machine.lane_closed(1, "tired", 1.0)
    assert machine.is_known(AT)


def test_old_lanes_are_renewed_one_at_a_time() -> None:
    machine = connected(lanes=2)
    machine.renew(1, "old")
    machine.renew(2, "old")
    assert machine.take_dead_lanes() == [(1, "old")]
    machine.lane_closed(1, "old", 1.0)
    machine.renew(2, "old")
    assert machine.take_dead_lanes() == []
    (dialled,) = machine.take_dials(2.0)
    machine.lane_dialing(3, *dialled)
    machine.receive(3, Welcome("p", 9))
    machine.renew(2, "old")
    assert machine.take_dead_lanes() == [(2, "old")]


def test_an_address_where_no_lane_came_up_is_dialled_later_every_time() -> None:
    machine, now, waits = receiver(lanes=1), 0.0, []
    for lane in range(1, 10):
        machine.on_timer(now)
        machine.connect(AT, now)
        timer = machine.next_timer()
        assert timer is not None
        waits.append(round(timer - now, 3))
        now = timer
        machine.advance(now)
        dial(machine, lane, now=now)
        machine.lane_closed(lane, "refused", now)
    assert waits[:4] == [0.0, 0.05, 0.1, 0.2]
    assert waits[-1] == 2.0
    machine.connect(AT, now + 60)
    assert machine.take_dials(now + 60) == [(AT, 0)]
    machine.lane_dialing(10, AT, 0)
    machine.receive(10, Welcome("p", 9))
    machine.disconnect(AT)
    machine.connect(AT, now + 61)
    assert machine.take_dials(now + 61) == [(AT, 0)]
