"""Transfers over real sockets, without faults."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from transport_rig import (
    LAYOUT,
    ReceiveSide,
    SendSide,
    arrays,
    assert_arrived,
    picks,
    transfer,
    until,
)

from prfaas.errors import ConfigError, TransferError
from prfaas_transport import (
    Memory,
    PeerJoined,
    PeerUp,
    ReceiveNode,
    RoomOpened,
    RoomReceived,
    RoomSent,
    TransportConfig,
)

Keep = Callable[[Any], Any]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("chunk_bytes", [1000, 64 << 10, 1 << 20])
def test_bytes_arrive_in_the_granted_items_only(keep: Keep, lanes: int, chunk_bytes: int) -> None:
    send = keep(SendSide(chunk_bytes=chunk_bytes))
    receive = keep(ReceiveSide(lanes=lanes))
    source = picks(1, kv=100, state=2, aux=1)
    grants = picks(2, kv=100, state=2, aux=1)
    transfer(send, receive, 5, source, grants)
    assert_arrived(send, receive, source, grants)


def test_contiguous_items_and_large_chunks(keep: Keep) -> None:
    send, receive = keep(SendSide(chunk_bytes=8 << 20)), keep(ReceiveSide())
    source = {"kv": np.arange(1024)}
    transfer(send, receive, 5, source, source)
    assert_arrived(send, receive, source, source)


def test_more_scattered_items_than_one_call_takes(keep: Keep) -> None:
    send, receive = keep(SendSide(chunk_bytes=64 << 20)), keep(ReceiveSide(lanes=1))
    source = {"kv": np.arange(1024)[::-1]}
    grants = {"kv": np.random.default_rng(1).permutation(1024)}
    transfer(send, receive, 5, source, grants)
    assert_arrived(send, receive, source, grants)


def test_64_rooms_at_once(keep: Keep) -> None:
    send, receive = keep(SendSide(chunk_bytes=32 << 10)), keep(ReceiveSide())
    receive.node.connect(send.node.address)
    order = np.random.default_rng(3).permutation(1024)
    rooms = {1000 + i: {"kv": order[16 * i : 16 * i + 16], "aux": np.array([i])} for i in range(64)}
    for room, grants in rooms.items():
        receive.node.open_room(room, address=send.node.address, grants=grants, prefix_tokens=room)
    for room in rooms:
        opened = send.events.wait(RoomOpened, room=room)
        assert opened.grants == {"kv": 16, "state.0.mamba": 0, "aux": 1}
        assert opened.prefix_tokens == room
        send.send(room, rooms[room])
    for room in rooms:
        receive.events.wait(RoomReceived, room=room)
        send.events.wait(RoomSent, room=room)
    everything = {"kv": order, "aux": np.arange(64)}
    assert_arrived(send, receive, everything, everything)
    assert send.node.stats()["rooms_sent_total"] == 64
    assert send.node.stats()["chunks_queued"] == 0


def test_two_decode_nodes_share_a_room(keep: Keep) -> None:
    send = keep(SendSide())
    ranks = [keep(ReceiveSide(node_id=f"decode-{i}")) for i in range(2)]
    source = picks(1, kv=64, aux=1)
    for rank in ranks:
        rank.node.open_room(5, address=send.node.address, grants=source)
    for i in range(2):
        send.events.wait(RoomOpened, room=5, peer=f"decode-{i}")
    send.send(5, source)
    send.events.wait(RoomSent, room=5)
    for rank in ranks:
        rank.events.wait(RoomReceived, room=5)
        assert_arrived(send, rank, source, source)


def test_blank_groups_go_out_as_zero_bytes(keep: Keep, caplog: pytest.LogCaptureFixture) -> None:
    send = keep(SendSide(blank_groups=frozenset({"state"})))
    receive = keep(ReceiveSide())
    source = picks(1, kv=10, state=2, aux=1)
    transfer(send, receive, 5, source, source)
    assert (receive.arrays["state.0.mamba"][0][source["state.0.mamba"]] == 0).all()
    kv = source["kv"]
    assert np.array_equal(receive.arrays["kv"][0][kv], send.arrays["kv"][0][kv])
    assert "FAULT INJECTION" in caplog.text


def test_connect_warms_all_lanes_and_is_idempotent(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide(lanes=4))
    for _ in range(3):
        receive.node.connect(send.node.address)
    up = receive.events.wait(PeerUp)
    assert up.address == send.node.address
    assert up.node_id == "prefill"
    send.events.wait(PeerJoined, peer="decode")
    until(lambda: send.node.stats()["peers"]["decode"]["lanes"] == 4)


def test_methods_may_be_called_from_callbacks_and_their_bugs_do_no_harm(keep: Keep) -> None:
    send = keep(SendSide())
    grants = {"aux": np.array([1])}
    calls: list[Any] = []

    def on_event(event: Any) -> None:
        calls.append(event)
        if isinstance(event, PeerUp):
            node.open_room(1, address=event.address, grants=grants)
        if isinstance(event, RoomReceived) and event.room < 4:
            node.stats()
            node.forget(event.room)
            node.open_room(event.room + 1, address=send.node.address, grants=grants)
        raise RuntimeError("a bug in a callback")

    node = keep(
        ReceiveNode(
            layout=LAYOUT,
            memory=Memory(LAYOUT, arrays(LAYOUT, None)),
            node_id="decode",
            source_host=None,
            config=TransportConfig(),
            on_event=on_event,
        )
    )
    node.connect(send.node.address)
    for room in range(1, 5):
        send.events.wait(RoomOpened, room=room)
        send.send(room, grants)
        send.events.wait(RoomSent, room=room)
    until(lambda: RoomReceived(4) in calls)


def test_pings_measure_the_round_trip_and_keep_idle_lanes_up(keep: Keep) -> None:
    send, receive = keep(SendSide(liveness_s=0.05)), keep(ReceiveSide(liveness_s=0.05, lanes=2))
    receive.node.connect(send.node.address)
    receive.events.wait(PeerUp)
    until(lambda: all(lane["rtt_s"] is not None for lane in receive.node.stats()["lanes"]))
    until(lambda: all(lane["bytes_sent_total"] > 500 for lane in receive.node.stats()["lanes"]))
    assert receive.node.stats()["lanes_lost_total"] == 0


def test_a_closed_node_says_so() -> None:
    send, receive = SendSide(), ReceiveSide()
    for side in (send, receive):
        side.node.close()
        side.node.close()
        side.node.stats()
        side.node.abort(1, "x")
    with pytest.raises(TransferError, match="closed"):
        send.node.submit(1, group="kv", start=0, items=np.arange(1))
    with pytest.raises(TransferError, match="closed"):
        receive.node.connect(("127.0.0.1", 1))


def test_memory_checks_what_it_is_given() -> None:
    good = arrays(LAYOUT, None)
    pointers = {name: [a.ctypes.data for a in group] for name, group in good.items()}
    memory = Memory.from_pointers(LAYOUT, pointers)
    memory.destination(2, 1, np.array([3]))[0][:] = b"1234567"
    assert good["aux"][1][3].tobytes() == b"1234567"
    for bad in (
        {},
        {**good, "aux": good["aux"][:1]},
        {**good, "aux": [good["aux"][0][:5], good["aux"][1]]},
        {**good, "aux": [good["aux"][0][:, :5], good["aux"][1]]},
        {**pointers, "aux": [0, 0]},
    ):
        with pytest.raises(ConfigError):
            Memory(LAYOUT, bad)


@pytest.mark.parametrize("wrong", [{"lanes": -1}, {"chunk_bytes": -1}, {"liveness_s": 0}])
def test_config_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TransportConfig(**wrong)
