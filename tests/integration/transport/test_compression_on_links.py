"""Compression that decides for itself: a slow link turns it on, a path limited by CPU does not.

Real sockets, TCP's own readings, nothing patched.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kv_bytes import bf16_bytes
from transport_rig import LAYOUT, ReceiveSide, SendSide, assert_arrived, transfer
from wan_rig import linked_regions

import prfaas_netem
from prfaas_netem import LinkSpec
from prfaas_transport import PeerJoined

Keep = Callable[[Any], Any]
ALL = {"kv": np.arange(1024)}
SLOW = LinkSpec.parse(rate="100mbit", rtt="20ms")


def fill(send: SendSide) -> None:
    for index, entry in enumerate(send.arrays["kv"]):
        entry[:] = bf16_bytes(entry.size, seed=index).reshape(entry.shape)


def compression(send: SendSide) -> dict[str, Any]:
    state: dict[str, Any] = send.node.stats()["peers"]["decode"]["compression"]
    return state


@pytest.mark.root
def test_on_a_slow_link_it_turns_itself_on_and_pays(keep: Keep, tmp_path: Path) -> None:
    with linked_regions(tmp_path, SLOW, "c") as regions:
        topology = regions.topology
        with prfaas_netem.inside(topology.namespace("a")):
            send = keep(SendSide(compression="auto", host=topology.address("a")))
        fill(send)
        with prfaas_netem.inside(topology.namespace("b")):
            receive = keep(ReceiveSide(compression="auto", host=topology.address("b"), lanes=8))
        transfer(send, receive, 5, ALL, ALL)
        assert_arrived(send, receive, ALL, ALL)
        stats, state = send.node.stats(), compression(send)
        receive.node.close()
        send.node.close()
    assert [lane["is_paced"] for lane in stats["lanes"]] == [True] * 8
    plain_bytes = sum(entry.item_bytes * 1024 for entry in LAYOUT.groups[0].entries)
    assert stats["encoding_saved_bytes_total"] > 0.08 * plain_bytes, state


def test_where_the_cpu_is_the_limit_next_to_nothing_is_encoded(keep: Keep) -> None:
    send = keep(SendSide(compression="auto"))
    fill(send)
    receive = keep(ReceiveSide(compression="auto"))
    receive.node.connect(send.node.address)
    send.events.wait(PeerJoined)
    end_s, room = time.monotonic() + 3, 0
    while time.monotonic() < end_s:
        room += 1
        transfer(send, receive, room, ALL, ALL)
    stats = send.node.stats()
    assert not any(lane["is_paced"] for lane in stats["lanes"])
    assert not compression(send)["is_on"]
    assert stats["chunks_encoded_total"] <= 0.05 * stats["chunks_sent_total"]
