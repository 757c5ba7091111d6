"""Whole nodes without TLS, with a secret: strangers get no lane, nobody gets a room unproven."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from transport_rig import ReceiveSide, SendSide, assert_arrived, picks, transfer, until

from prfaas.transfer.capability import Secret, SecretReceiver
from prfaas.transfer.guard import Party
from prfaas.wire import Open
from prfaas_transport import PeerLost, RoomFailed, RoomOpened

Keep = Callable[[Any], Any]
Capability = Callable[[Party, Party, Open], bytes]
SECRET = Secret([b"s" * 32])
OTHER = Secret([b"o" * 32])
GRANTS = {"aux": np.arange(3)}


def test_rooms_work_between_those_who_know_it(keep: Keep) -> None:
    send, receive = keep(SendSide(secret=SECRET)), keep(ReceiveSide(secret=SECRET))
    source, grants = picks(1, kv=100, state=2, aux=1), picks(2, kv=100, state=2, aux=1)
    transfer(send, receive, 5, source, grants)
    assert_arrived(send, receive, source, grants)


@pytest.mark.parametrize("wrong", [None, OTHER])
def test_a_receiver_that_does_not_know_it_gets_no_lane(keep: Keep, wrong: Secret | None) -> None:
    send, receive = keep(SendSide(secret=SECRET)), keep(ReceiveSide(secret=wrong, lanes=1))
    receive.node.open_room(5, address=send.node.address, grants=GRANTS)
    assert receive.events.wait(RoomFailed, room=5).reason == "auth_failed"
    until(lambda: send.node.stats()["lanes_refused_total"].get("auth_failed"))
    assert send.events.all == []


def test_a_receiver_believes_no_sender_that_does_not_know_it(keep: Keep) -> None:
    send, receive = keep(SendSide()), keep(ReceiveSide(secret=SECRET, lanes=1))
    receive.node.open_room(5, address=send.node.address, grants=GRANTS)
    assert receive.events.wait(RoomFailed, room=5).reason == "auth_failed"
    assert not any(isinstance(event, RoomOpened) for event in send.events.all)


def show(receive: ReceiveSide, capability: Capability) -> None:
    """Have a receiver that knows the secret show other capabilities."""
    machine = receive.node._machine
    machine._guard = replace(machine._guard, capability=capability)


def made_at(offset_s: float, receive: ReceiveSide) -> Capability:
    """Return capabilities as made at another time."""
    return SecretReceiver(
        SECRET,
        digest=receive.node._machine.layout.digest(),
        clock=lambda: time.time() + offset_s,
        new_nonce=bytes,
    ).capability


def test_forged_expired_and_recorded_capabilities_open_no_room(keep: Keep) -> None:
    send, receive = keep(SendSide(secret=SECRET)), keep(ReceiveSide(secret=SECRET))
    transfer(send, receive, 1, GRANTS, GRANTS)
    right = receive.node._machine._guard.capability
    recorded: list[bytes] = []

    def record(us: Party, sender: Party, frame: Open) -> bytes:
        recorded.append(right(us, sender, frame))
        return recorded[-1]

    show(receive, record)
    transfer(send, receive, 2, GRANTS, GRANTS)
    cases: list[tuple[Capability, str]] = [
        (lambda *_: b"", "capability_invalid"),
        (lambda *_: bytes(40), "capability_invalid"),
        (lambda *_: recorded[0], "capability_invalid"),
        (lambda us, sender, frame: right((us[0], 7), sender, frame), "capability_invalid"),
        (lambda us, sender, frame: right(us, (sender[0], 7), frame), "capability_invalid"),
        (made_at(-3600, receive), "capability_expired"),
    ]
    send.events.clear()
    for number, (capability, reason) in enumerate(cases, start=10):
        show(receive, capability)
        receive.node.open_room(number, address=send.node.address, grants=GRANTS)
        assert receive.events.wait(RoomFailed, room=number).reason == reason
    refused = send.node.stats()["rooms_refused_total"]
    assert refused == {"capability_invalid": 5, "capability_expired": 1}
    assert send.events.all == []
    show(receive, right)
    transfer(send, receive, 20, GRANTS, GRANTS)
    assert not any(isinstance(event, PeerLost) for event in receive.events.all)
