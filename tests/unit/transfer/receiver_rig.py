"""Receivers in the states that their tests start from."""

import numpy as np

from prfaas.transfer import (
    Entry,
    Group,
    Layout,
    PeerUp,
    Receiver,
)
from prfaas.transfer.receiver import ReceiveLimits
from prfaas.wire import (
    Chunk,
    Fin,
    Frame,
    Hello,
    Open,
    Welcome,
)

LAYOUT = Layout((Group("kv", (Entry(10, 100), Entry(30, 100))), Group("aux", (Entry(5, 4),))))
AT = ("10.0.0.1", 5000)


def receiver(**limits: float) -> Receiver:
    merged = {"lanes": 2, "room_timeout_s": 60.0, **limits}
    return Receiver(LAYOUT, node_id="d", session=100, limits=ReceiveLimits(**merged))  # type: ignore[arg-type]


def dial(machine: Receiver, *lanes: int, now: float = 0.0) -> None:
    for lane, (address, number) in zip(lanes, machine.take_dials(now), strict=True):
        machine.lane_dialing(lane, address, number)
        assert isinstance(machine.next_frame(lane), Hello)


def connected(**limits: float) -> Receiver:
    machine = receiver(**limits)
    machine.connect(AT, 0.0)
    dial(machine, 1, 2)
    for lane in (1, 2):
        machine.receive(lane, Welcome("p", 9))
    assert machine.take_events() == [PeerUp(AT, "p", 9)]
    return machine


def opened(**limits: float) -> Receiver:
    machine = connected(**limits)
    machine.open_room(
        7,
        address=AT,
        grants={"kv": np.array([5, 6, 9]), "aux": np.array([3])},
        prefix_tokens=2,
        now=0.0,
    )
    assert machine.next_frame(1) == Open(7, 1, 60_000, 2, (3, 1))
    return machine


def chunk(number: int, group: int, entry: int, start: int, count: int) -> Chunk:
    size = LAYOUT.groups[group].entries[entry].item_bytes
    return Chunk(7, 1, number, group, entry, start, count, count * size)


ALL = (chunk(0, 0, 0, 0, 3), chunk(1, 0, 1, 0, 2), chunk(2, 0, 1, 2, 1), chunk(3, 1, 0, 0, 1))
FIN = Fin(7, 1, (3, 1))


def put(machine: Receiver, lane: int, frame: Chunk) -> bool:
    machine.receive(lane, frame)
    target = machine.payload_target(lane)
    machine.payload_done(lane)
    return target is not None


def drain(machine: Receiver, lane: int) -> list[Frame]:
    frames: list[Frame] = []
    while (frame := machine.next_frame(lane)) is not None:
        frames.append(frame)
    return frames
