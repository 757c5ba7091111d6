"""`TlsChannel` on real sockets: bytes, refusals with their reasons, bounds, new files."""

import contextlib
import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates

from prfaas.errors import ConfigError
from prfaas_transport import tls
from prfaas_transport.tls import TlsChannel, TlsChannels, TlsReason, TlsRefusedError
from prfaas_transport.tls_context import TlsFiles

Connect = Callable[[], tuple[socket.socket, socket.socket]]


@pytest.fixture
def certs(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certs")
    made.node("prefill")
    made.node("decode", region="b")
    return made


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connected, non-blocking pairs with small buffers; all closed in the end, channels too."""
    opened: list[Any] = []
    wrap = TlsChannels.wrap

    def recorded(self: TlsChannels, sock: socket.socket, *, server_side: bool) -> TlsChannel:
        opened.append(wrap(self, sock, server_side=server_side))
        return opened[-1]

    monkeypatch.setattr(TlsChannels, "wrap", recorded)

    def pair() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            dialled = socket.create_connection(listener.getsockname())
            accepted, _ = listener.accept()
        for sock in (dialled, accepted):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
            sock.setblocking(False)
            opened.append(sock)
        return dialled, accepted

    yield pair
    for end in opened:
        end.close()


def channels(files: TlsFiles, **more: Any) -> TlsChannels:
    return TlsChannels(files, deployment="demo", **more)


def shake(*ends: TlsChannel, timeout_s: float = 5.0) -> None:
    """Take handshakes to their end."""
    left, stop_s = list(ends), time.monotonic() + timeout_s
    while left:
        assert time.monotonic() < stop_s, "the handshake does not end"
        left = [end for end in left if not end.handshake(time.monotonic())]


def pair_up(
    client: TlsChannels, server: TlsChannels, connect: Connect
) -> tuple[TlsChannel, TlsChannel]:
    dialled, accepted = connect()
    return client.wrap(dialled, server_side=False), server.wrap(accepted, server_side=True)


def refused(end: TlsChannel, other: Any = None) -> TlsReason:
    """Return why `end` refuses; `other` is driven along as far as it goes."""
    stop_s = time.monotonic() + 5
    while time.monotonic() < stop_s:
        if other is not None:
            with contextlib.suppress(OSError):
                other.handshake(0.0)
        try:
            if end.handshake(0.0):
                with contextlib.suppress(BlockingIOError):
                    end.receive_into([memoryview(bytearray(1))])
        except TlsRefusedError as error:
            return error.reason
    raise AssertionError("not refused")


def random_views(data: bytes, seed: int) -> list[memoryview]:
    """Cut data into pieces of very different sizes."""
    rng, views, at = random.Random(seed), [], 0
    while at < len(data):
        size = rng.choice([1, 7, 40, 4096, 16383, 16384, 16385, 65536, 300_000])
        views.append(memoryview(data)[at : at + size])
        at += size
    return views


@pytest.mark.parametrize("ktls", [False, True], ids=["views as they are", "all staged"])
def test_bytes_arrive_whole_through_full_buffers(
    certs: Certificates, connect: Connect, ktls: bool
) -> None:
    """The sender's memory is overwritten as soon as it counts as taken."""
    client, server = channels(certs.files("decode")), channels(certs.files("prefill"))
    client.ktls = ktls
    near, far = pair_up(client, server, connect)
    shake(near, far)
    assert str(near.identity) == "prfaas://demo/a/prefill"
    assert str(far.identity) == "prfaas://demo/b/decode"
    expected = random.Random(1).randbytes(8 << 20)
    memory = bytearray(expected)
    views, taken = [memory_view(memory, v) for v in spans(expected, 2)], 0
    got, target = bytearray(), memoryview(bytearray(100_000))
    blocked = 0
    while len(got) < len(expected):
        if views or near.wants_write():
            try:
                count = near.send(views)
            except BlockingIOError:
                count, blocked = 0, blocked + 1
            memory[taken : taken + count] = bytes(count)
            taken += count
            views = advance(views, count)
        with contextlib.suppress(BlockingIOError):
            cuts = [target[:5], target[5:20_000], target[20_000:]]
            got += target[: far.receive_into(cuts)]
    assert got == expected
    assert blocked
    assert not near.wants_write()
    assert not far.pending()


def spans(data: bytes, seed: int) -> list[tuple[int, int]]:
    at, found = 0, []
    for view in random_views(data, seed):
        found.append((at, at + len(view)))
        at += len(view)
    return found


def memory_view(memory: bytearray, span: tuple[int, int]) -> memoryview:
    return memoryview(memory)[span[0] : span[1]]


def advance(views: list[memoryview], count: int) -> list[memoryview]:
    while count and views:
        if count < len(views[0]):
            return [views[0][count:], *views[1:]]
        count -= len(views[0])
        views = views[1:]
    return views


def test_what_was_decrypted_and_not_taken_is_pending(certs: Certificates, connect: Connect) -> None:
    ends = channels(certs.files("decode")), channels(certs.files("prefill"))
    near, far = pair_up(*ends, connect)
    shake(near, far)
    near.send([memoryview(b"x" * 1000)])
    select.select([far.fileno()], [], [], 5)
    assert far.receive_into([memoryview(bytearray(400))]) == 400
    assert far.pending()
    assert far.receive_into([memoryview(bytearray(4000))]) == 600
    assert not far.pending()
    near.close()
    select.select([far.fileno()], [], [], 5)
    assert far.receive_into([memoryview(bytearray(1))]) == 0


def test_a_foreign_ca_is_refused_by_both(
    certs: Certificates, connect: Connect, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path / "foreign")
    client, server = channels(foreign.node("decode")), channels(certs.files("prefill"))
    near, far = pair_up(client, server, connect)
    assert refused(near, far) == TlsReason.CERTIFICATE_UNTRUSTED
    near, far = pair_up(channels(mixed(foreign, certs)), server, connect)
    assert refused(far, near) == TlsReason.CERTIFICATE_UNTRUSTED
    assert server.stats()["lanes_refused_total"][TlsReason.CERTIFICATE_UNTRUSTED] == 1


def mixed(own: Certificates, trusted: Certificates) -> TlsFiles:
    """Return files of a node that trusts the right CA and is signed by another."""
    files = own.files("decode")
    return TlsFiles(ca=trusted.authority.bundle_file, cert=files.cert, key=files.key)


def test_an_expired_certificate_is_refused(certs: Certificates, connect: Connect) -> None:
    server = channels(certs.files("prefill"))
    certs.expire("decode")
    near, far = pair_up(channels(certs.files("decode")), server, connect)
    assert refused(far, near) == TlsReason.CERTIFICATE_EXPIRED
    assert refused(near) in {TlsReason.REFUSED_BY_PEER, TlsReason.HANDSHAKE_CLOSED}


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PF\x02\x01" + bytes(60)])
def test_plain_text_is_refused(certs: Certificates, connect: Connect, words: bytes) -> None:
    server = channels(certs.files("prefill"))
    dialled, accepted = connect()
    dialled.send(words)
    far = server.wrap(accepted, server_side=True)
    assert refused(far) == TlsReason.NOT_TLS
    assert server.stats()["handshakes_open"] == 0


class Other:
    """A TLS client that does not do as ours."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.tls = context.wrap_socket(sock.dup(), do_handshake_on_connect=False)
        self.tls.setblocking(False)

    def handshake(self, _now: float) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()


@pytest.mark.parametrize(
    ("version", "with_certificate", "reason"),
    [
        (ssl.TLSVersion.TLSv1_2, True, TlsReason.VERSION),
        (ssl.TLSVersion.TLSv1_3, False, TlsReason.NO_CERTIFICATE),
    ],
)
def test_an_old_or_nameless_client_is_refused(
    certs: Certificates,
    connect: Connect,
    version: ssl.TLSVersion,
    with_certificate: bool,
    reason: TlsReason,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certs.authority.bundle_file)
    context.maximum_version = version
    if with_certificate:
        context.load_cert_chain(certs.files("decode").cert, certs.files("decode").key)
    server = channels(certs.files("prefill"))
    dialled, accepted = connect()
    other = Other(dialled, context)
    far = server.wrap(accepted, server_side=True)
    assert refused(far, other) == reason
    assert server.stats()["lanes_refused_total"] == {reason: 1}
    far.close()
    other.tls.close()


def test_the_identity_decides_not_what_the_peer_says(
    certs: Certificates, connect: Connect, tmp_path: Path
) -> None:
    server = channels(certs.files("prefill"))
    near, far = pair_up(channels(certs.files("decode")), server, connect)
    shake(near, far)
    far.check_node_id("decode/0")
    for liar in ("prefill/0", "decode2/0", "", "demo/b/decode"):
        with pytest.raises(TlsRefusedError, match="tls_identity_mismatch"):
            far.check_node_id(liar)
    other = TlsChannels(certs.files("prefill"), deployment="other")
    near, far = pair_up(channels(certs.files("decode")), other, connect)
    assert refused(far, near) == TlsReason.IDENTITY_MISMATCH


def test_half_open_handshakes_are_bounded(
    certs: Certificates, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "MAX_HANDSHAKES", 2)
    server = channels(certs.files("prefill"))
    silent = [server.wrap(connect()[1], server_side=True) for _ in range(2)]
    with pytest.raises(TlsRefusedError, match="tls_too_many_handshakes"):
        server.wrap(connect()[1], server_side=True)
    silent[0].close()
    near, far = pair_up(channels(certs.files("decode")), server, connect)
    shake(near, far)
    assert server.stats()["handshakes_open"] == 1
    server.wrap(connect()[1], server_side=True).close()
    near.close()
    far.close()


def test_new_connections_use_the_newest_files(certs: Certificates, connect: Connect) -> None:
    """CA rotation as `certs init --rotate`, `renew`, `init --retire` do it; no end restarts."""
    client, server = channels(certs.files("decode")), channels(certs.files("prefill"))
    old = pair_up(client, server, connect)
    shake(*old)
    for step in (
        lambda: certs.authority.rotate(days=9),
        lambda: certs.authority.renew("prefill", before_days=30, days=90),
        lambda: certs.authority.renew("decode", before_days=30, days=90, new_key=True),
        certs.authority.retire,
    ):
        step()
        shake(*pair_up(client, server, connect))
    assert server.stats()["reloads_total"] >= 3
    old[0].send([memoryview(b"still here")])
    select.select([old[1].fileno()], [], [], 5)
    assert old[1].receive_into([memoryview(bytearray(99))]) == 10


def test_files_that_do_not_fit_together_leave_the_last_ones_in_use(
    certs: Certificates, connect: Connect
) -> None:
    client, server = channels(certs.files("decode")), channels(certs.files("prefill"))
    certs.files("prefill").key.write_bytes(certs.files("decode").key.read_bytes())
    shake(*pair_up(client, server, connect))
    certs.files("prefill").key.unlink()
    shake(*pair_up(client, server, connect))
    assert server.stats()["failed_reloads_total"] >= 2
    with pytest.raises(ConfigError, match=r"prefill\.key"):
        channels(certs.files("prefill"))


def test_dialled_lanes_grow_old(certs: Certificates, connect: Connect) -> None:
    client = channels(certs.files("decode"), max_lane_age_s=5.0)
    server = channels(certs.files("prefill"), max_lane_age_s=5.0)
    dialled, accepted = pair_up(client, server, connect)
    began_s = time.monotonic()
    shake(dialled, accepted)
    assert dialled.outdated(began_s + 1.0) == ""
    assert dialled.outdated(began_s + 6.0) == "tls_lane_age"
    assert accepted.outdated(began_s + 6.0) == ""
