"""Links that are cut, hosts that vanish, processes that are killed: how soon it shows."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transport_rig import SendSide, assert_arrived, until
from wan_rig import LINK, Regions, Side

import prfaas_netem
from prfaas_transport import PeerJoined, RoomFailed, RoomOpened, RoomReceived, TransportConfig

Keep = Callable[[Any], Any]
ALL = {"kv": np.arange(1024)}


def half_way(regions: Regions, keep: Keep, liveness_s: float) -> tuple[Side, Side]:
    """Return a sender and a receiver in the middle of a room."""
    send = keep(Side(regions, "a", liveness_s=liveness_s))
    receive = keep(Side(regions, "b", liveness_s=liveness_s))
    receive.node.open_room(5, address=send.node.address, grants=ALL)
    send.events.wait(RoomOpened, room=5)
    until(lambda: send.node.stats()["peers"]["decode"]["lanes"] == 8)
    SendSide.send(send, 5, ALL)  # type: ignore[arg-type]
    until(lambda: receive.received_bytes() > 8 << 20)
    return send, receive


@pytest.mark.root
def test_a_cut_link_carries_on_at_once_and_sends_nothing_twice(
    regions: Regions, keep: Keep
) -> None:
    send, receive = half_way(regions, keep, liveness_s=6.0)
    regions.cut()
    time.sleep(3.0)
    before = receive.received_bytes()
    regions.restore()
    back_s = time.monotonic()
    until(lambda: receive.received_bytes() > before)
    assert time.monotonic() - back_s < 0.5 + 0.5  # the goal, and what a busy machine adds
    receive.events.wait(RoomReceived, room=5)
    assert_arrived(send, receive, ALL, ALL)  # type: ignore[arg-type]
    assert receive.received_bytes() == 4 * 1024 * (16 << 10)
    assert send.node.stats()["chunks_resent_total"] == 0
    assert receive.node.stats()["lanes_lost_total"] <= 30


@pytest.mark.root
def test_a_host_that_vanished_is_missed_within_the_liveness(regions: Regions, keep: Keep) -> None:
    send, receive = half_way(regions, keep, liveness_s=TransportConfig().liveness_s)
    regions.cut()
    gone_s = time.monotonic()
    try:
        for side in (send, receive):
            assert side.events.wait(RoomFailed, room=5).reason == "lanes_lost"
            assert 1.0 < time.monotonic() - gone_s < 2.6  # and what a busy machine adds
    finally:
        regions.restore()


def test_a_killed_receiver_is_missed_at_once(keep: Keep) -> None:
    send = keep(SendSide())
    script = Path(__file__).with_name("decode_process.py")
    with subprocess.Popen([sys.executable, str(script), str(send.node.address[1])]) as process:
        try:
            send.events.wait(PeerJoined, peer="decode")
            send.events.wait(RoomOpened, room=5)
            send.node.submit(5, group="kv", start=0, items=np.arange(512))
        finally:
            process.kill()
            killed_s = time.monotonic()
    assert send.events.wait(RoomFailed, room=5).reason == "lanes_lost"
    assert time.monotonic() - killed_s < 0.1 + 0.4  # the goal, and what a busy machine adds


@pytest.mark.root
def test_a_path_that_loses_packets_gets_bbr_and_a_clean_one_does_not(
    regions: Regions, keep: Keep
) -> None:
    send = keep(Side(regions, "a", liveness_s=6.0))
    receive = keep(Side(regions, "b", liveness_s=6.0))

    def move(room: int) -> None:
        receive.node.open_room(room, address=send.node.address, grants=ALL)
        send.events.wait(RoomOpened, room=room)
        SendSide.send(send, room, ALL)  # type: ignore[arg-type]
        receive.events.wait(RoomReceived, room=room, timeout_s=60)

    def controls() -> set[str]:
        return {lane["congestion_control"] for lane in send.node.stats()["lanes"]}

    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    move(1)
    assert controls() == {default}
    prfaas_netem.set_link(regions.control, LINK.merged({"loss": 0.005}))
    try:
        for room in range(2, 6):
            move(room)
            if "bbr" in controls():
                break
    finally:
        regions.restore()
    assert controls() == {"bbr"}
