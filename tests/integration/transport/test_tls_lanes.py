"""Whole nodes inside mutual TLS: transfers, refused peers, new certificates under way."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Certificates
from transport_rig import ReceiveSide, SendSide, assert_arrived, picks, transfer, until
from wiretap import Wiretap

from prfaas_transport import PeerLost, PeerUp, RoomFailed, RoomOpened, RoomReceived, RoomSent
from prfaas_transport.tls import TlsChannels
from prfaas_transport.tls_context import TlsFiles

Keep = Callable[[Any], Any]
LANES = 3


@pytest.fixture
def certs(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certs")
    made.node("prefill")
    made.node("decode", region="b")
    return made


def channels(files: TlsFiles, **more: Any) -> TlsChannels:
    return TlsChannels(files, deployment="demo", **more)


class Sides:
    """A sender and a receiver with their channels."""

    def __init__(self, certs: Certificates, keep: Keep, **more: Any) -> None:
        self.sends = channels(certs.files("prefill"))
        self.receives = channels(certs.files("decode"), **more)
        self.send = keep(SendSide(channel_factory=self.sends, connect_timeout_s=1.0))
        self.receive = keep(ReceiveSide(channel_factory=self.receives, lanes=LANES, liveness_s=0.5))


@pytest.mark.parametrize("chunk_bytes", [1000, 1 << 20])
def test_bytes_arrive_in_the_granted_items_only(
    certs: Certificates, keep: Keep, chunk_bytes: int
) -> None:
    send = keep(SendSide(channel_factory=channels(certs.files("prefill")), chunk_bytes=chunk_bytes))
    receive = keep(ReceiveSide(channel_factory=channels(certs.files("decode")), lanes=LANES))
    source, grants = picks(1, kv=600, state=2, aux=1), picks(2, kv=600, state=2, aux=1)
    transfer(send, receive, 5, source, grants)
    assert_arrived(send, receive, source, grants)


@pytest.mark.parametrize("is_tls", [True, False])
def test_nothing_of_a_room_can_be_read_on_the_way(
    certs: Certificates, keep: Keep, is_tls: bool
) -> None:
    """Without TLS the same tap sees it: so it would."""
    more = [{"channel_factory": channels(certs.files(n))} for n in ("prefill", "decode")]
    send = keep(SendSide(**more[0] if is_tls else {}))
    receive = keep(ReceiveSide(lanes=1, **more[1] if is_tls else {}))
    tap = Wiretap(send.node.address)
    try:
        grants = {"kv": np.arange(8)}
        receive.node.open_room(5, address=tap.address, grants=grants)
        send.events.wait(RoomOpened, room=5)
        send.send(5, grants)
        receive.events.wait(RoomReceived, room=5)
        assert_arrived(send, receive, grants, grants)
        secret = send.arrays["kv"][0][3][:64].tobytes()
        assert (secret in tap.seen) is not is_tls
        assert (b"decode" in tap.seen) is not is_tls
        assert len(tap.seen) > 4 * 8 * (16 << 10)
    finally:
        receive.node.close()
        tap.close()


def refused_receiver(
    sides: Sides, keep: Keep, reason: str, *, node_id: str = "decode", **config: Any
) -> None:
    """A room of a receiver that must not come in fails; one of the good receiver does not."""
    grants = picks(3, kv=64, aux=1)
    sides.receive.node.open_room(1, address=sides.send.node.address, grants=grants)
    sides.send.events.wait(RoomOpened, room=1)
    other = keep(ReceiveSide(node_id=node_id, lanes=1, connect_timeout_s=2.0, **config))
    other.node.open_room(2, address=sides.send.node.address, grants=grants)
    other.events.wait(RoomFailed, room=2)
    until(lambda: sides.sends.stats()["lanes_refused_total"].get(reason))
    sides.send.send(1, grants)
    sides.receive.events.wait(RoomReceived, room=1)
    assert_arrived(sides.send, sides.receive, grants, grants)
    assert all(event.room == 1 for event in sides.send.events.all if hasattr(event, "room"))
    assert not any(isinstance(event, PeerLost) for event in sides.send.events.all)


def test_a_receiver_without_tls_is_refused(certs: Certificates, keep: Keep) -> None:
    refused_receiver(Sides(certs, keep), keep, "tls_not_tls")


def test_a_receiver_of_another_ca_is_refused(
    certs: Certificates, keep: Keep, tmp_path: Path
) -> None:
    own = Certificates(tmp_path / "foreign").node("decode")
    files = TlsFiles(ca=certs.authority.bundle_file, cert=own.cert, key=own.key)
    reason = "tls_certificate_untrusted"
    refused_receiver(Sides(certs, keep), keep, reason, channel_factory=channels(files))


def test_a_receiver_whose_certificate_expired_is_refused(certs: Certificates, keep: Keep) -> None:
    certs.node("late")
    certs.expire("late")
    late = channels(certs.files("late"))
    reason = "tls_certificate_expired"
    refused_receiver(Sides(certs, keep), keep, reason, node_id="late", channel_factory=late)


def test_a_receiver_that_takes_anothers_name_is_refused(certs: Certificates, keep: Keep) -> None:
    """It would otherwise push the good receiver out, whose name it takes."""
    thief = channels(certs.node("thief"))
    reason = "tls_identity_mismatch"
    refused_receiver(Sides(certs, keep), keep, reason, node_id="decode", channel_factory=thief)


def test_a_sender_that_takes_anothers_name_is_refused(certs: Certificates, keep: Keep) -> None:
    send = keep(SendSide(channel_factory=channels(certs.node("thief"))))
    receives = channels(certs.files("decode"))
    receive = keep(ReceiveSide(channel_factory=receives, lanes=1))
    receive.node.open_room(1, address=send.node.address, grants={"aux": np.arange(1)})
    failed = receive.events.wait(RoomFailed, room=1)
    assert "tls_identity_mismatch" in failed.detail
    assert not any(isinstance(event, PeerUp) for event in receive.events.all)


def test_a_sender_without_tls_is_refused(certs: Certificates, keep: Keep) -> None:
    send = keep(SendSide())
    receive = keep(ReceiveSide(channel_factory=channels(certs.files("decode")), lanes=1))
    receive.node.open_room(1, address=send.node.address, grants={"aux": np.arange(1)})
    receive.events.wait(RoomFailed, room=1)
    assert send.node.stats()["rooms_opened_total"] == 0


def test_a_silent_client_is_closed_in_time(certs: Certificates, keep: Keep) -> None:
    sides = Sides(certs, keep)
    with socket.create_connection(sides.send.node.address) as silent:
        until(lambda: sides.sends.stats()["handshakes_open"] == 1)
        silent.settimeout(5)
        assert silent.recv(1) == b""
    until(lambda: sides.sends.stats()["handshakes_open"] == 0)
    grants = picks(3, kv=64, aux=1)
    transfer(sides.send, sides.receive, 1, grants, grants)


def test_a_room_goes_on_while_ca_and_certificates_are_replaced(
    certs: Certificates, keep: Keep
) -> None:
    """Every lane is dialled anew, one by one, with what the last step left."""
    sides = Sides(certs, keep, max_lane_age_s=0.2)
    source = {"kv": np.arange(1024)}
    sides.receive.node.open_room(1, address=sides.send.node.address, grants=source)
    sides.send.events.wait(RoomOpened, room=1)
    steps: list[Callable[[], Any]] = [
        lambda: certs.authority.rotate(days=9),
        lambda: certs.authority.renew("prefill", before_days=30, days=90, new_key=True),
        lambda: certs.authority.renew("decode", before_days=30, days=90, new_key=True),
        certs.authority.retire,
    ]
    for number, step in enumerate(steps):
        step()
        before = sides.sends.handshakes
        part = source["kv"][256 * number : 256 * number + 256]
        sides.send.node.submit(1, group="kv", start=int(part[0]), items=part)
        # A handshake under way has read its files before this step: all lanes twice.
        enough = before + 2 * LANES
        until(lambda enough=enough: sides.sends.handshakes >= enough)  # type: ignore[misc]
    sides.send.node.finish(1, {"kv": 1024})
    sides.receive.events.wait(RoomReceived, room=1)
    sides.send.events.wait(RoomSent, room=1)
    assert_arrived(sides.send, sides.receive, source, source)
    # On a busy machine a lane may be given up in its handshake; none is refused.
    assert set(sides.sends.stats()["lanes_refused_total"]) <= {"tls_handshake_closed"}
    assert not any(isinstance(event, RoomFailed | PeerLost) for event in sides.send.events.all)
