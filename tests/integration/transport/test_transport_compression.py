"""Chunks that are encoded on their way: what arrives, what a peer cannot do, and the fences.

When encoding pays is told in tests/unit/transfer; here it always does.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Certificates
from kv_bytes import bf16_bytes
from transport_rig import (
    CANARY,
    ReceiveSide,
    SendSide,
    assert_arrived,
    transfer,
    until,
)

from prfaas.transfer.compression import CompressionControl
from prfaas.wire import Chunk, Decoder, Feature, Fin, Frame, Open, Welcome, encode
from prfaas_transport import Entry, Group, Layout, RoomFailed, RoomOpened, RoomReceived, chunk_coder
from prfaas_transport.codec import Codec
from prfaas_transport.tls import TlsChannels

Keep = Callable[[Any], Any]
AUTO = {"compression": "auto"}
ITEMS, PAGE_BYTES = 256, 16 << 10
LAYOUT = Layout((Group("kv", (Entry(PAGE_BYTES, ITEMS),) * 4), Group("aux", (Entry(100, 64),))))
KV = {"kv": np.arange(ITEMS)}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompressionControl, "wants", lambda _: True)


def sends(keep: Keep, **config: Any) -> SendSide:
    """A sender whose KV cache looks like one."""
    side: SendSide = keep(SendSide(layout=LAYOUT, **{**AUTO, **config}))
    for index, entry in enumerate(side.arrays["kv"]):
        entry[:] = bf16_bytes(entry.size, seed=index).reshape(entry.shape)
    return side


def receives(keep: Keep, **config: Any) -> ReceiveSide:
    side: ReceiveSide = keep(ReceiveSide(layout=LAYOUT, **{**AUTO, **config}))
    return side


def lanes_up(receive: ReceiveSide) -> int:
    peers = receive.node.stats()["peers"].values()
    return sum(peer["lanes"] for peer in peers)


@pytest.mark.parametrize("chunk_bytes", [PAGE_BYTES, 1 << 20, 4 << 20])
@pytest.mark.parametrize("is_scattered", [True, False])
def test_bytes_arrive_in_the_granted_items_only(
    keep: Keep, chunk_bytes: int, is_scattered: bool
) -> None:
    send, receive = sends(keep, chunk_bytes=chunk_bytes), receives(keep)
    source, grants = {"kv": np.arange(50, 250)}, {"kv": np.arange(3, 203)}
    if is_scattered:
        rng = np.random.default_rng(1)
        source, grants = ({"kv": rng.permutation(ITEMS)[:200]} for _ in range(2))
    source["aux"], grants["aux"] = np.array([5]), np.array([7])
    transfer(send, receive, 5, source, grants)
    assert_arrived(send, receive, source, grants)
    sent, received = send.node.stats(), receive.node.stats()
    plain_bytes = 200 * 4 * PAGE_BYTES
    assert sent["encoding_saved_bytes_total"] > 0.28 * plain_bytes
    assert received["encoding_saved_bytes_total"] == sent["encoding_saved_bytes_total"]
    assert received["chunks_decoded_total"] == sent["chunks_encoded_total"] > 0
    assert sent["payload_bytes_sent_total"] == received["payload_bytes_received_total"]
    on_the_wire = sum(lane["bytes_sent_total"] for lane in send.node.stats()["lanes"])
    assert on_the_wire < 0.75 * plain_bytes


def test_inside_tls(keep: Keep, tmp_path: Path) -> None:
    certs = Certificates(tmp_path / "certs")
    certs.node("prefill")
    certs.node("decode", region="b")
    side = {
        name: TlsChannels(certs.files(name), deployment="demo") for name in ("prefill", "decode")
    }
    send = sends(keep, channel_factory=side["prefill"])
    receive = receives(keep, channel_factory=side["decode"])
    transfer(send, receive, 5, KV, KV)
    assert_arrived(send, receive, KV, KV)
    assert receive.node.stats()["chunks_decoded_total"] > 0


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_nothing_is_encoded_unless_both_want_it(keep: Keep, who: str) -> None:
    off = {"compression": "off"}
    send = sends(keep, **(off if who == "sender" else {}))
    receive = receives(keep, **(off if who == "receiver" else {}))
    transfer(send, receive, 5, KV, KV)
    assert_arrived(send, receive, KV, KV)
    assert send.node.stats()["chunks_encoded_total"] == 0


def test_what_does_not_shrink_goes_out_plain_and_is_left_alone_for_a_while(keep: Keep) -> None:
    send, receive = sends(keep, chunk_bytes=PAGE_BYTES), receives(keep)
    for entry in send.arrays["kv"]:
        entry[:] = np.random.default_rng(1).integers(0, 256, entry.shape, np.uint8)
    transfer(send, receive, 5, KV, KV)
    assert_arrived(send, receive, KV, KV)
    stats = send.node.stats()
    assert stats["chunks_encoded_total"] == stats["encoding_saved_bytes_total"] == 0
    assert 20 <= stats["chunks_left_plain_total"] <= 100
    assert stats["chunks_sent_total"] == 4 * ITEMS


def test_lanes_that_die_on_the_way_lose_nothing(keep: Keep) -> None:
    send, receive = sends(keep, chunk_bytes=64 << 10), receives(keep)
    for room in range(8):
        receive.node.open_room(room, address=send.node.address, grants=KV)
        send.events.wait(RoomOpened, room=room)
        until(lambda: lanes_up(receive) > 1)  # the last lane's death is the peer's
        send.send(room, KV)
        lane = min(send.node._loop._lanes)
        with contextlib.suppress(KeyError, OSError):
            send.node._loop._lanes[lane].sock.shutdown(socket.SHUT_RDWR)
        receive.events.wait(RoomReceived, room=room)
    assert_arrived(send, receive, KV, KV)
    assert receive.node.stats()["lanes_lost_total"] > 0


def test_abort_waits_until_the_rooms_memory_is_read(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn: list[int] = []

    def slow_split(codec: Codec, views: list[memoryview], width: int) -> Any:
        time.sleep(0.004)
        torn.extend(1 for view in views if not any(view))
        return work(codec, views, width)

    work = Codec.split
    monkeypatch.setattr(Codec, "split", slow_split)
    send, receive = sends(keep, chunk_bytes=PAGE_BYTES, io_threads=4), receives(keep, lanes=8)
    original = [entry.copy() for entry in send.arrays["kv"]]
    for room in range(15):
        receive.node.open_room(room, address=send.node.address, grants=KV)
        send.events.wait(RoomOpened, room=room)
        send.node.submit(room, group="kv", start=0, items=KV["kv"])
        time.sleep(0.002 + 0.0007 * (room % 10))
        send.node.abort(room, "prefill_gone")
        for entry in send.arrays["kv"]:
            entry[:] = 0
        receive.events.wait(RoomFailed, room=room)
        assert not torn, f"room {room}"
        for entry, saved in zip(send.arrays["kv"], original, strict=True):
            entry[:] = saved
    transfer(send, receive, 99, KV, KV)
    assert_arrived(send, receive, KV, KV)


@pytest.mark.parametrize("is_scattered", [True, False])
def test_abort_waits_until_the_rooms_memory_is_written(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, is_scattered: bool
) -> None:
    name = "_scatter" if is_scattered else "join"
    work = getattr(chunk_coder, name)

    def slow(*args: Any) -> None:
        time.sleep(0.004)
        work(*args)

    monkeypatch.setattr(chunk_coder, name, slow)
    send = sends(keep, chunk_bytes=256 << 10)
    receive = receives(keep, lanes=8, io_threads=4)
    grants = {"kv": np.random.default_rng(3).permutation(ITEMS)} if is_scattered else KV
    kv = receive.arrays["kv"]
    for room in range(15):
        receive.node.open_room(room, address=send.node.address, grants=grants)
        send.events.wait(RoomOpened, room=room)
        send.send(room, KV)
        decoded = receive.node.stats()["chunks_decoded_total"]
        until(lambda n=decoded: receive.node.stats()["chunks_decoded_total"] > n)
        receive.node.abort(room, "client_gone")
        for entry in kv:
            entry[:] = CANARY
        time.sleep(0.01)
        assert all((entry == CANARY).all() for entry in kv), f"room {room}"
    transfer(send, receive, 99, KV, grants)
    assert_arrived(send, receive, KV, grants)


class HostileSender:
    """Takes one lane, welcomes it with every feature, and says what it is told to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]
        self._decoder = Decoder()
        self._lane: socket.socket

    def wait_for_room(self) -> Open:
        self._lane, _ = self._listener.accept()
        self._read(type_name="Hello")
        self._lane.sendall(encode(Welcome("hostile", 1, Feature.COMPRESSION)))
        frame = self._read(type_name="Open")
        assert isinstance(frame, Open)
        return frame

    def say(self, frame: Frame, payload: bytes = b"") -> None:
        self._lane.sendall(encode(frame) + payload)

    def is_hung_up_on(self) -> bool:
        self._lane.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while self._lane.recv(1 << 16):
                pass
        return True

    def close(self) -> None:
        self._lane.close()
        self._listener.close()

    def _read(self, type_name: str) -> Frame:
        while True:
            frame = self._decoder.next_frame()
            if type(frame).__name__ == type_name:
                assert frame is not None
                return frame
            if frame is None:
                self._decoder.receive(self._lane.recv(1 << 16))


@contextlib.contextmanager
def hostile_room(receive: ReceiveSide) -> Iterator[tuple[HostileSender, Open]]:
    peer = HostileSender()
    try:
        receive.node.open_room(1, address=peer.address, grants={"kv": np.arange(4)})
        yield peer, peer.wait_for_room()
    finally:
        peer.close()


def chunk_of(room: Open, payload: bytes, encoding: int = 2) -> Chunk:
    sizes = {"payload_bytes": len(payload), "plain_bytes": 4 * PAGE_BYTES}
    return Chunk(room.room, room.attempt, 0, 0, 0, 0, 4, **sizes, encoding=encoding)


def good_payload(seed: int) -> bytes:
    data = bf16_bytes(4 * PAGE_BYTES, seed)
    return b"".join(Codec().encode(Codec().split([memoryview(data)], 2)) or ())


def test_what_does_not_decode_ends_the_lane_and_writes_nothing(keep: Keep) -> None:
    good = good_payload(1)
    cases = {
        "cut": good[:-7],
        "longer": good + b"x",
        "planes of nothing": bytes(8) + b"x",
        "no planes": b"\x00",
        "garbage": good[:8] + np.random.default_rng(1).bytes(len(good) - 8),
        "plane too large": b"\xff" * 8 + good[8:],
    }
    for name, payload in cases.items():
        receive = receives(keep, lanes=1)
        with hostile_room(receive) as (peer, room):
            peer.say(chunk_of(room, payload), payload)
            assert peer.is_hung_up_on(), name
        receive.events.wait(RoomFailed)
        assert all((entry == CANARY).all() for entry in receive.arrays["kv"]), name
        receive.node.close()


def test_what_does_decode_is_written_once_the_rest_of_its_bytes_are_read(keep: Keep) -> None:
    """The frames that follow it, in the same packet, are not lost."""
    receive, payload = receives(keep, lanes=1), good_payload(2)
    with hostile_room(receive) as (peer, room):
        rest = [replace_entry(chunk_of(room, payload), entry) for entry in range(1, 4)]
        for frame in (chunk_of(room, payload), *rest):
            peer.say(frame, payload)
        peer.say(Fin(room.room, room.attempt, room.grants))
        receive.events.wait(RoomReceived)
    want = bf16_bytes(4 * PAGE_BYTES, 2)
    assert all(np.array_equal(entry[:4].reshape(-1), want) for entry in receive.arrays["kv"])
    assert all((entry[4:] == CANARY).all() for entry in receive.arrays["kv"])


def replace_entry(frame: Chunk, entry: int) -> Chunk:
    sizes = {"payload_bytes": frame.payload_bytes, "plain_bytes": frame.plain_bytes}
    return Chunk(frame.room, frame.attempt, entry, 0, entry, 0, 4, **sizes, encoding=2)
