"""Background rooms on real sockets: at full rate alone, after foreground, and never stuck."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from transport_rig import ReceiveSide, SendSide, assert_arrived, picks

from prfaas.wire import Priority
from prfaas_transport import RoomOpened, RoomReceived, RoomSent

Keep = Callable[[Any], Any]


def start(
    send: SendSide, receive: ReceiveSide, room: int, priority: Priority, **items: Any
) -> None:
    receive.node.open_room(room, address=send.node.address, grants=items, priority=priority)
    send.events.wait(RoomOpened, room=room)


def test_background_alone_arrives_without_waiting_for_anything(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide())
    items = picks(1, kv=900)
    begin = time.monotonic()
    for room in range(3):
        start(send, receive, room, Priority.BACKGROUND, **items)
        send.send(room, items)
        receive.events.wait(RoomReceived, room=room)
    assert time.monotonic() - begin < 10
    assert_arrived(send, receive, items, items)


def test_background_yields_to_foreground_and_both_arrive(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide())
    order = np.random.default_rng(0).permutation(1024)
    first, second = order[:600], order[600:]
    start(send, receive, 1, Priority.BACKGROUND, kv=first)
    start(send, receive, 2, Priority.FOREGROUND, kv=second)
    send.send(2, {"kv": second})
    send.send(1, {"kv": first})
    receive.events.wait(RoomReceived, room=2)
    receive.events.wait(RoomReceived, room=1)
    send.events.wait(RoomSent, room=1)
    ends = [e.room for e in receive.events.all if isinstance(e, RoomReceived)]
    assert ends == [2, 1]
    assert_arrived(send, receive, {"kv": order}, {"kv": order})
    peer = send.node.stats()["peers"]["decode"]
    assert peer["background_bytes"] == peer["backlog_bytes"] == 0
