"""Many rooms at once on a link that is the limit: large ones do not hold small ones up."""

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
from transport_rig import SendSide
from wan_rig import Regions, Side

from prfaas_transport import RoomOpened, RoomReceived

LARGE, SMALL = 96, 1
NUM_LARGE, NUM_SMALL = 8, 56


@pytest.mark.root
def test_small_rooms_among_large_ones_come_first_and_large_ones_are_fair(
    regions: Regions, keep: Callable[[Any], Any]
) -> None:
    send, receive = keep(Side(regions, "a")), keep(Side(regions, "b"))
    order = np.random.default_rng(1).permutation(1024)
    sizes = ([LARGE] + [SMALL] * (NUM_SMALL // NUM_LARGE)) * NUM_LARGE
    ends = np.cumsum(sizes)
    rooms = {
        n: {"kv": order[end - size : end]}
        for n, (end, size) in enumerate(zip(ends, sizes, strict=True))
    }
    ended_s: dict[int, float] = {}
    all_ended = threading.Event()

    def note(event: Any) -> None:
        if isinstance(event, RoomReceived):
            ended_s[event.room] = time.monotonic()
            if len(ended_s) == len(rooms):
                all_ended.set()

    receive.node._loop._owner.deliver = note
    for room, grants in rooms.items():
        receive.node.open_room(room, address=send.node.address, grants=grants)
    for room in rooms:
        send.events.wait(RoomOpened, room=room)
    began_s = {}
    for room, grants in rooms.items():
        SendSide.send(send, room, grants, pieces=1)  # type: ignore[arg-type]
        began_s[room] = time.monotonic()
    assert all_ended.wait(20)
    took_s = {
        size: sorted(ended_s[n] - began_s[n] for n in rooms if sizes[n] == size)
        for size in (LARGE, SMALL)
    }
    small, large = took_s[SMALL], took_s[LARGE]
    assert median(small) < 0.5 * median(large), took_s
    assert small[-1] < 0.85 * large[-1], took_s
    assert large[0] > 0.25 * large[-1], took_s
