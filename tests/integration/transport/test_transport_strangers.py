"""Connections of strangers: many, silent, garbled; and names and texts that would mislead."""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from transport_rig import LAYOUT, ReceiveSide, SendSide, assert_arrived, picks, transfer, until

from prfaas.wire import Decoder, Hello, Refuse, Welcome, encode
from prfaas_transport import PeerLost, RoomFailed
from prfaas_transport.loop import MAX_STRANGERS

Keep = Callable[[Any], Any]


def test_a_flood_of_silent_connections_keeps_nobody_out(keep: Keep) -> None:
    """They are few at any time, the oldest goes first, and those who say HELLO get their lanes."""
    send, receive = keep(SendSide(connect_timeout_s=60.0)), keep(ReceiveSide())
    source = picks(1, kv=4)
    with contextlib.ExitStack() as stack:
        flood = [
            stack.enter_context(socket.create_connection(send.node.address))
            for _ in range(MAX_STRANGERS + 50)
        ]
        flood[0].settimeout(10)
        assert flood[0].recv(1) == b""
        transfer(send, receive, 5, source, source)
        assert_arrived(send, receive, source, source)
        assert len(send.node.stats()["lanes"]) <= MAX_STRANGERS + 4
        more = [
            stack.enter_context(socket.create_connection(send.node.address))
            for _ in range(MAX_STRANGERS)
        ]
        flood[-1].settimeout(10)
        assert flood[-1].recv(1) == b""
        assert more
    until(lambda: len(send.node.stats()["lanes"]) == 4)
    assert receive.node.stats()["lanes_lost_total"] == 0


def test_slow_hellos_are_ended_in_time(keep: Keep) -> None:
    """A byte now and then does not keep a connection."""
    send = keep(SendSide(connect_timeout_s=0.5))
    hello = encode(Hello("slow", 1, 0, 1, LAYOUT.digest(), LAYOUT.wire_groups()))
    began_s = time.monotonic()
    with socket.create_connection(send.node.address) as sock, contextlib.suppress(OSError):
        for byte in hello:
            sock.sendall(bytes([byte]))
            time.sleep(0.05)
    assert 0.4 < time.monotonic() - began_s < 2.0
    until(lambda: send.node.stats()["lanes"] == [])


@pytest.mark.parametrize("node_id", ["two\nlines", "\x1b[2J", "\u202egnp"])
def test_a_name_that_does_not_print_is_refused(keep: Keep, node_id: str) -> None:
    send = keep(SendSide())
    hello = Hello(node_id, 1, 0, 1, LAYOUT.digest(), LAYOUT.wire_groups())
    with socket.create_connection(send.node.address, timeout=10) as sock:
        sock.sendall(encode(hello))
        assert sock.recv(1) == b""
    assert send.node.stats()["peers"] == {}


def test_a_text_of_a_peer_is_one_printable_line(keep: Keep) -> None:
    receive = keep(ReceiveSide(lanes=1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        receive.node.open_room(5, address=server.getsockname(), grants={"kv": np.arange(2)})
        sock, _ = server.accept()
        with sock:
            sock.sendall(encode(Refuse("layout_mismatch", "no\nlane 1 closed: all is well\x1b[2J")))
            failed = receive.events.wait(RoomFailed, room=5)
    assert failed.reason == "layout_mismatch"
    assert failed.detail.endswith("no?lane 1 closed: all is well?[2J")


def test_a_sender_that_refuses_is_not_dialled_in_a_loop(keep: Keep) -> None:
    """Rooms opened one after another against it share few connections, and each fails in time."""
    receive = keep(ReceiveSide(lanes=2))
    num_connections, until_s = 0, time.monotonic() + 1.5
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.settimeout(0.05)
        address, room = server.getsockname(), 0
        receive.node.open_room(room, address=address, grants={"kv": np.arange(2)})
        while time.monotonic() < until_s:
            with contextlib.suppress(TimeoutError):
                sock, _ = server.accept()
                num_connections += 1
                sock.sendall(encode(Refuse("auth_failed", "go away")))
                sock.close()
            if any(isinstance(e, RoomFailed) and e.room == room for e in receive.events.all):
                room += 1
                receive.node.open_room(room, address=address, grants={"kv": np.arange(2)})
    assert room >= 3
    assert num_connections <= 2 * (room + 1) <= 16


def test_a_sender_that_comes_back_is_reached_within_seconds(keep: Keep) -> None:
    receive = keep(ReceiveSide(lanes=1))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = held.getsockname()
        for room in range(4):
            receive.node.open_room(room, address=address, grants={"kv": np.arange(2)})
            receive.events.wait(RoomFailed, room=room)
    send = keep(SendSide(port=address[1]))
    began_s = time.monotonic()
    transfer(send, receive, 9, picks(1, kv=2), picks(2, kv=2))
    assert time.monotonic() - began_s < 2.5
    assert sum(isinstance(event, PeerLost) for event in receive.events.all) == 4


def test_a_mute_lane_beside_good_ones_costs_time_and_not_the_room(keep: Keep) -> None:
    """Who has recorded a HELLO, where nothing proves it, gets a lane and reads nothing from it."""
    send = keep(SendSide(liveness_s=0.3, chunk_bytes=64 << 10))
    receive = keep(ReceiveSide(lanes=2, liveness_s=0.3))
    receive.node.connect(send.node.address)
    until(lambda: len(send.node.stats()["lanes"]) == 2)
    session = send.node.stats()["peers"]["decode"]["session"]
    hello = Hello("decode", session, 1, 2, LAYOUT.digest(), LAYOUT.wire_groups())
    with socket.create_connection(send.node.address, timeout=10) as mute:
        mute.sendall(encode(hello))
        decoder = Decoder()
        while (frame := decoder.next_frame()) is None:
            decoder.receive(mute.recv(1))
        assert isinstance(frame, Welcome)
        source = picks(1, kv=400)
        transfer(send, receive, 5, source, source)
    assert_arrived(send, receive, source, source)
    assert send.node.stats()["chunks_resent_total"] > 0
