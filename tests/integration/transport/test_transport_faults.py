"""Lanes and processes that die, peers that lie."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transport_rig import (
    CANARY,
    LAYOUT,
    ReceiveSide,
    SendSide,
    assert_arrived,
    picks,
    transfer,
    until,
)

from prfaas.errors import TransferError
from prfaas.wire import Chunk, Decoder, Hello, Open, Welcome, encode
from prfaas_transport import (
    Entry,
    Group,
    Layout,
    PeerLost,
    PeerUp,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
)

Keep = Callable[[Any], Any]
ALL = {"kv": np.arange(1024), "aux": np.arange(8)}


def reset_lane(node: Any, index: int = 0) -> None:
    """Reset one connection of a node from outside, as a middlebox would."""
    lanes = list(node._loop._lanes.values())
    if index < len(lanes):
        sock = lanes[index].sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):  # it may be on its way up or down
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def prefill(port: int, seed: int, *extra: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    script = Path(__file__).with_name("prefill_process.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(port), str(seed), *extra],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_lanes_reset_during_a_transfer_lose_nothing(keep: Keep) -> None:
    send, receive = keep(SendSide(chunk_bytes=32 << 10)), keep(ReceiveSide(lanes=4))
    receive.node.open_room(5, address=send.node.address, grants=ALL)
    send.events.wait(RoomOpened, room=5)
    until(lambda: send.node.stats()["peers"]["decode"]["lanes"] == 4)
    for start in range(0, 1024, 128):
        send.node.submit(5, group="kv", start=start, items=np.arange(start, start + 128))
        reset_lane(receive.node, index=3)
        time.sleep(0.02)
    send.node.submit(5, group="aux", start=0, items=ALL["aux"])
    send.node.finish(5, {"kv": 1024, "aux": 8})
    receive.events.wait(RoomReceived, room=5)
    send.events.wait(RoomSent, room=5)
    assert_arrived(send, receive, ALL, ALL)
    assert receive.node.stats()["lanes_lost_total"] > 0
    until(lambda: send.node.stats()["peers"]["decode"]["lanes"] == 4)


def test_killed_sender_is_noticed_at_once_and_a_new_one_is_used(keep: Keep) -> None:
    receive = keep(ReceiveSide())
    with prefill(0, 1, "slow") as (process, port):
        address = ("127.0.0.1", port)
        receive.node.open_room(5, address=address, grants=ALL)
        receive.events.wait(PeerUp)
        until(lambda: receive.node.stats()["payload_bytes_received_total"] > 0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed_s = time.monotonic()
        receive.events.wait(PeerLost, address=address)
        assert time.monotonic() - killed_s < 1.0
        kinds = [type(event) for event in receive.events.all]
        assert kinds.index(RoomFailed) < kinds.index(PeerLost)
    receive.events.clear()
    with prefill(port, 2) as (_, same_port):
        assert same_port == port
        receive.node.open_room(6, address=address, grants=ALL)
        receive.events.wait(RoomReceived, room=6)
        reference = keep(SendSide(seed=2))
        assert_arrived(reference, receive, ALL, ALL)
    receive.events.wait(PeerLost, address=address)
    with prefill(0, 3) as (_, other_port):
        receive.node.open_room(7, address=("127.0.0.1", other_port), grants=ALL)
        receive.events.wait(RoomReceived, room=7)


def test_stopped_sender_is_noticed_by_its_silence(keep: Keep) -> None:
    receive = keep(ReceiveSide(liveness_s=0.3))
    with prefill(0, 1, "slow") as (process, port):
        receive.node.open_room(5, address=("127.0.0.1", port), grants=ALL)
        receive.events.wait(PeerUp)
        process.send_signal(signal.SIGSTOP)
        failed = receive.events.wait(RoomFailed, room=5, timeout_s=5)
        assert failed.reason == "lanes_lost"


def test_nobody_listens(keep: Keep) -> None:
    receive = keep(ReceiveSide())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
        receive.node.open_room(5, address=address, grants=ALL)
        failed = receive.events.wait(RoomFailed, room=5)
        assert failed.reason == "connect_failed"
        receive.events.wait(PeerLost, address=address)


def test_listener_that_never_answers(keep: Keep) -> None:
    receive = keep(ReceiveSide(connect_timeout_s=0.3))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        receive.node.open_room(5, address=mute.getsockname(), grants=ALL)
        failed = receive.events.wait(RoomFailed, room=5)
        assert "handshake_timeout" in failed.detail


def test_other_layout_is_refused_with_a_reason(keep: Keep) -> None:
    send = keep(SendSide())
    other = Layout((Group("kv", (Entry(1, 8),)),))
    receive = keep(ReceiveSide(layout=other))
    receive.node.connect(send.node.address)
    assert receive.events.wait(PeerLost).reason == "layout_mismatch"


def test_receiver_abort_is_a_fence(keep: Keep) -> None:
    send, receive = keep(SendSide(chunk_bytes=256 << 10)), keep(ReceiveSide())
    kv = receive.arrays["kv"]
    for room in range(20):
        receive.node.open_room(room, address=send.node.address, grants=ALL)
        send.events.wait(RoomOpened, room=room)
        send.send(room, ALL)
        time.sleep(0.001 * (room % 5))
        receive.node.abort(room, "client_gone")
        for entry in kv:
            entry[:] = CANARY
        time.sleep(0.02)
        assert all((entry == CANARY).all() for entry in kv)
        send.events.wait(RoomFailed if room in _failed(send) else object, room=room)
    until(lambda: send.node.stats()["rooms_open"] == 0)
    transfer(send, receive, 99, ALL, ALL)
    assert_arrived(send, receive, ALL, ALL)


def _failed(send: SendSide) -> set[int]:
    return {event.room for event in send.events.all if isinstance(event, RoomFailed)}


def test_sender_abort_is_a_fence(keep: Keep) -> None:
    """After abort the source may change; the receiver must never take changed bytes for good."""
    send, receive = keep(SendSide(chunk_bytes=1 << 20)), keep(ReceiveSide())
    original = [entry.copy() for entry in send.arrays["kv"]]
    for room in range(20):
        receive.node.open_room(room, address=send.node.address, grants=ALL)
        send.events.wait(RoomOpened, room=room)
        send.send(room, ALL)
        time.sleep(0.002 * (room % 8))
        send.node.abort(room, "prefill_gone")
        for entry in send.arrays["kv"]:
            entry[:] = 0
        until(lambda room=room: _ended(receive, room))
        if RoomReceived(room) in receive.events.all:
            for mine, theirs in zip(receive.arrays["kv"], original, strict=True):
                assert np.array_equal(mine, theirs)
        for entry, saved in zip(send.arrays["kv"], original, strict=True):
            entry[:] = saved


def _ended(receive: ReceiveSide, room: int) -> bool:
    kinds = (RoomReceived, RoomFailed)
    return any(isinstance(e, kinds) and e.room == room for e in receive.events.all)


def test_sender_abort_tells_the_receiver_why(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide())
    receive.node.open_room(5, address=send.node.address, grants=ALL)
    send.events.wait(RoomOpened, room=5)
    send.node.abort(5, "out_of_memory", "no pages left")
    failed = receive.events.wait(RoomFailed, room=5)
    assert (failed.reason, failed.detail) == ("out_of_memory", "no pages left")
    send.events.wait(RoomFailed, room=5)


def test_deadline_ends_a_room_on_both_sides(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide(room_timeout_s=0.3))
    receive.node.open_room(5, address=send.node.address, grants=ALL)
    assert receive.events.wait(RoomFailed, room=5).reason == "deadline"
    assert send.events.wait(RoomFailed, room=5).reason == "deadline"


@contextmanager
def hostile(address: tuple[str, int], *data: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=10) as sock:
        for part in data:
            sock.sendall(part)
        yield sock


def hello(node_id: str = "evil") -> bytes:
    return encode(Hello(node_id, 1, 0, 1, LAYOUT.digest(), LAYOUT.wire_groups()))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 64,
        os.urandom(4096),
        b"PF\x02\x01\xff\xff\xff\xff",
        b"PF\x01\x01\xff\xff\xff\xff",
        b"PF\x02\x08" + struct.pack("!I", 8193),
        hello() + hello(),
        hello() + encode(Chunk(1, 1, 0, 0, 0, 0, 1, 16384)) + b"x" * 16384,
        hello() + encode(Welcome("x", 1)),
        hello() + encode(Open(1, 1, 1, 0, (1,))),
        encode(Open(1, 1, 1, 0, (1, 1, 1))),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_malformed_bytes_end_their_lane_only(keep: Keep, data: bytes) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide())
    receive.node.connect(send.node.address)
    receive.events.wait(PeerUp)
    with hostile(send.node.address, data) as sock:
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
    source = picks(1, kv=4)
    transfer(send, receive, 5, source, source)
    assert_arrived(send, receive, source, source)
    assert receive.node.stats()["lanes_lost_total"] == 0


def test_half_a_hello_times_out(keep: Keep) -> None:
    send = keep(SendSide(connect_timeout_s=0.3))
    with hostile(send.node.address, hello()[:20]) as sock:
        assert sock.recv(1) == b""


@pytest.mark.parametrize(
    "frame",
    [
        Chunk(5, 1, 0, 0, 0, 1020, 8, 8 * 16384),
        Chunk(99, 1, 0, 0, 0, 0, 1, 16384),
        Chunk(5, 9, 0, 0, 0, 0, 1, 16384),
        Chunk(5, 1, 0, 0, 0, 0, 2, 16384),
        Chunk(5, 1, 0, 9, 0, 0, 1, 16384),
        Chunk(5, 1, 0, 0, 0, 0, 1, 1 << 30),
    ],
    ids=repr,
)
def test_a_lying_sender_writes_nowhere_outside_its_grant(keep: Keep, frame: Chunk) -> None:
    receive = keep(ReceiveSide(lanes=1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        receive.node.open_room(5, address=server.getsockname(), grants={"kv": np.arange(1022)})
        sock, _ = server.accept()
        with sock:
            sock.settimeout(10)
            decoder = Decoder()
            while decoder.next_frame() is None:
                decoder.receive(sock.recv(4096))
            sock.sendall(encode(Welcome("evil", 1)))
            try:
                sock.sendall(encode(frame) + b"\x00" * min(frame.payload_bytes, 1 << 20))
                time.sleep(0.1)
            except (ConnectionResetError, BrokenPipeError):
                pass
    receive.events.wait(RoomFailed, room=5)
    for entry in receive.arrays["kv"]:
        assert (entry == CANARY).all()


def test_submit_races_with_everything(keep: Keep) -> None:
    """Threads that submit, abort and read stats while lanes die: no deadlock, no dead thread."""
    send, receive = keep(SendSide(chunk_bytes=16 << 10)), keep(ReceiveSide())
    stop = threading.Event()

    def meddle() -> None:
        while not stop.wait(0.01):
            reset_quietly(receive.node)
            send.node.stats()
            receive.node.stats()

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        for room in range(30):
            receive.node.open_room(room, address=send.node.address, grants=ALL)
            until(lambda room=room: _ended(receive, room) or room in _opened(send))
            with suppress(TransferError):
                send.send(room, ALL)
            if room % 3 == 0:
                receive.node.abort(room, "x")
            until(lambda room=room: _ended(receive, room))
    finally:
        stop.set()
        meddler.join()
    transfer(send, receive, 99, ALL, ALL)


def _opened(send: SendSide) -> set[int]:
    return {event.room for event in send.events.all if isinstance(event, RoomOpened)}


def reset_quietly(node: Any) -> None:
    with suppress(OSError, RuntimeError):
        reset_lane(node)
