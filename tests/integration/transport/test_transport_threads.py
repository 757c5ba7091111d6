"""Several I/O threads: no call in progress outlives what ended it; what sockets are asked to be."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from transport_rig import CANARY, ReceiveSide, SendSide, assert_arrived, picks, transfer, until

from prfaas.errors import ConfigError
from prfaas_transport import PeerJoined, RoomFailed, RoomOpened, RoomReceived, RoomSent
from prfaas_transport.channel import Channel, PlainChannel

Keep = Callable[[Any], Any]
ALL = {"kv": np.arange(1024), "aux": np.arange(8)}
PAGE_BYTES = 16 << 10


class SlowCalls(PlainChannel):
    """System calls on pages that take a while before they touch them, as on a busy machine."""

    delay_s = 0.004

    def __init__(self, sock: socket.socket, torn: list[int]) -> None:
        super().__init__(sock)
        self.torn = torn
        self.send = self._send  # type: ignore[method-assign]

    def receive_into(self, views: list[memoryview]) -> int:
        if len(views[0]) >= PAGE_BYTES and len(views) > 1:
            time.sleep(self.delay_s)
        return super().receive_into(views)

    def _send(self, views: list[memoryview]) -> int:
        pages = [view for view in views if len(view) >= PAGE_BYTES]
        if pages:
            time.sleep(self.delay_s)
            self.torn += [page[0] for page in pages if page[0] == 0]
        return self._sock.sendmsg(views)


class SlowChannels:
    """Makes them; `torn` collects what was read of source pages after they were zeroed."""

    def __init__(self) -> None:
        self.torn: list[int] = []

    def wrap(self, sock: socket.socket, *, server_side: bool) -> Channel:
        return SlowCalls(sock, self.torn)


def test_abort_waits_for_a_call_that_writes_into_the_room(keep: Keep) -> None:
    send = keep(SendSide(chunk_bytes=256 << 10, io_threads=4))
    receive = keep(ReceiveSide(lanes=8, io_threads=4, channel_factory=SlowChannels()))
    kv = receive.arrays["kv"]
    for room in range(30):
        receive.node.open_room(room, address=send.node.address, grants=ALL)
        send.events.wait(RoomOpened, room=room)
        send.send(room, ALL)
        received = receive.node.stats()["payload_bytes_received_total"]
        until(lambda n=received: receive.node.stats()["payload_bytes_received_total"] > n)
        receive.node.abort(room, "client_gone")
        for entry in kv:
            entry[:] = CANARY
        time.sleep(0.01)
        assert all((entry == CANARY).all() for entry in kv), f"room {room}"
    transfer(send, receive, 99, ALL, ALL)
    assert_arrived(send, receive, ALL, ALL)


def test_abort_waits_for_a_call_that_reads_of_the_room(keep: Keep) -> None:
    slow = SlowChannels()
    send = keep(SendSide(chunk_bytes=256 << 10, io_threads=4, channel_factory=slow, warm_bytes=0))
    receive = keep(ReceiveSide(lanes=8, io_threads=4))
    original = [entry.copy() for entry in send.arrays["kv"]]
    for room in range(30):
        receive.node.open_room(room, address=send.node.address, grants=ALL)
        send.events.wait(RoomOpened, room=room)
        send.node.submit(room, group="kv", start=0, items=ALL["kv"])
        time.sleep(0.002 + 0.0007 * (room % 10))
        send.node.abort(room, "prefill_gone")
        for entry in send.arrays["kv"]:
            entry[:] = 0
        receive.events.wait(RoomFailed, room=room)
        assert not slow.torn, f"room {room}"
        for entry, saved in zip(send.arrays["kv"], original, strict=True):
            entry[:] = saved


def test_a_room_that_ends_by_itself_is_a_fence_too(keep: Keep) -> None:
    """Pages of a received room are given to the next while its lanes are still busy."""
    send = keep(SendSide(chunk_bytes=64 << 10, io_threads=3))
    receive = keep(ReceiveSide(lanes=6, io_threads=3))
    order = np.random.default_rng(5).permutation(1024)
    live: dict[int, np.ndarray] = {}
    free = [order[i : i + 128] for i in range(0, 1024, 128)]
    for room in range(120):
        while not free:
            for done in [r for r in live if RoomReceived(r) in receive.events.all]:
                part = live.pop(done)
                for mine, theirs in zip(receive.arrays["kv"], send.arrays["kv"], strict=True):
                    assert np.array_equal(mine[part], theirs[part]), f"room {done}"
                    mine[part] = CANARY
                free.append(part)
        live[room] = free.pop()
        grants = {"kv": live[room]}
        receive.node.open_room(room, address=send.node.address, grants=grants)
        send.events.wait(RoomOpened, room=room)
        send.send(room, grants)
    for room in live:
        receive.events.wait(RoomReceived, room=room)


def test_events_come_in_order_and_one_at_a_time(keep: Keep) -> None:
    send, receive = keep(SendSide(io_threads=4)), keep(ReceiveSide(lanes=8, io_threads=4))
    inside = threading.Lock()
    record = send.events.__call__

    def one_at_a_time(event: Any) -> None:
        assert inside.acquire(blocking=False), "two callbacks at once"
        time.sleep(0.0005)
        record(event)
        inside.release()

    send.node._loop._owner.deliver = one_at_a_time
    rooms = range(200, 260)
    for room in rooms:
        receive.node.open_room(room, address=send.node.address, grants={"aux": np.array([1])})
    for room in rooms:
        send.events.wait(RoomOpened, room=room)
        send.send(room, {"aux": np.array([1])})
    for room in rooms:
        send.events.wait(RoomSent, room=room)
        kinds = [type(e) for e in send.events.all if getattr(e, "room", None) == room]
        assert kinds == [RoomOpened, RoomSent]


@pytest.mark.parametrize("io_threads", [1, 5])
def test_lanes_are_shared_out_evenly(keep: Keep, io_threads: int) -> None:
    send, receive = keep(SendSide(io_threads=io_threads)), keep(ReceiveSide(lanes=10, io_threads=3))
    receive.node.connect(send.node.address)
    send.events.wait(PeerJoined)
    until(lambda: send.node.stats()["peers"]["decode"]["lanes"] == 10)
    shares = [len(thread.lanes) for thread in send.node._loop._threads]
    assert shares == [10 // io_threads] * io_threads
    assert sorted(len(thread.lanes) for thread in receive.node._loop._threads) == [3, 3, 4]


def test_congestion_control_is_set_on_both_sides(keep: Keep) -> None:
    send = keep(SendSide(congestion_control="reno"))
    receive = keep(ReceiveSide(congestion_control="reno"))
    transfer(send, receive, 1, picks(1, kv=4), picks(1, kv=4))
    for side in (send, receive):
        for lane in side.node._loop._lanes.values():
            name = lane.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert name.rstrip(b"\0") == b"reno"


@pytest.mark.parametrize("side", [SendSide, ReceiveSide])
def test_congestion_control_that_the_kernel_lacks(side: Any) -> None:
    with pytest.raises(ConfigError, match=r"congestion_control = 'warp'.*this kernel has.*reno"):
        side(congestion_control="warp")


def test_lanes_dial_from_all_source_hosts(keep: Keep) -> None:
    send, hosts = keep(SendSide()), ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    receive = keep(ReceiveSide(lanes=6, source_hosts=hosts))
    receive.node.connect(send.node.address)
    send.events.wait(PeerJoined)
    until(lambda: send.node.stats()["peers"]["decode"]["lanes"] == 6)
    used = [lane.sock.getsockname()[0] for lane in receive.node._loop._lanes.values()]
    assert sorted(used) == sorted(hosts * 2)


def test_a_source_host_of_another_machine() -> None:
    with pytest.raises(ConfigError, match=r"source_hosts: '192\.0\.2\.1'.*of this machine"):
        ReceiveSide(source_hosts=("192.0.2.1",))


def test_the_kernels_view_of_a_lane_is_in_the_stats(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide(lanes=1))
    transfer(send, receive, 1, ALL, ALL)
    moved = 4 * 1024 * PAGE_BYTES
    until(lambda: send.node.stats()["lanes"][0]["tcp"].get("bytes_acked", 0) > moved)
    tcp = send.node.stats()["lanes"][0]["tcp"]
    assert 0 < tcp["rtt_s"] < 1
    assert 0 <= tcp["busy_s"] < 60
    assert tcp["delivery_bytes_per_s"] > 0


def test_new_lanes_are_warmed_up_and_rooms_go_first(keep: Keep) -> None:
    send, receive = keep(SendSide(warm_bytes=300_000)), keep(ReceiveSide(lanes=2))
    receive.node.connect(send.node.address)
    until(lambda: receive.node.stats()["chunks_discarded_total"] == 2 * 3)
    transfer(send, receive, 1, picks(1, kv=4), picks(2, kv=4))
    assert_arrived(send, receive, picks(1, kv=4), picks(2, kv=4))
    assert receive.node.stats()["payload_bytes_received_total"] == 4 * 4 * PAGE_BYTES
    assert [e for e in send.events.all if isinstance(e, RoomFailed)] == []
