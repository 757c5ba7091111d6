"""`struct tcp_info` as bytes: every field at its place, whatever the kernel's age."""

import socket
import struct

import pytest

from prfaas.transfer.signals import LaneSample
from prfaas_transport import tcp_info

FIELDS = {
    68: ("I", 20_500),  # rtt
    72: ("I", 1_500),  # rttvar
    120: ("Q", 5_000_000_000),  # bytes_acked
    144: ("I", 70_000),  # notsent_bytes
    160: ("Q", 125_000_000),  # delivery_rate
    168: ("Q", 9_000_000),  # busy_time
    176: ("Q", 2_000_000),  # rwnd_limited
    184: ("Q", 1_000_000),  # sndbuf_limited
    208: ("Q", 42_000),  # bytes_retrans
}


def packed() -> bytes:
    info = bytearray(b"\0" * 232)
    info[7] = 1
    for at, (kind, value) in FIELDS.items():
        struct.pack_into("=" + kind, info, at, value)
    return bytes(info)


def test_every_field() -> None:
    assert tcp_info.parse(packed(), 3, 12.5) == LaneSample(
        lane=3,
        at_s=12.5,
        rtt_s=0.0205,
        rttvar_s=0.0015,
        bytes_acked=5_000_000_000,
        bytes_retrans=42_000,
        delivery_bytes_per_s=125e6,
        busy_s=9.0,
        rwnd_limited_s=2.0,
        sndbuf_limited_s=1.0,
        unsent_bytes=70_000,
        is_app_limited=True,
    )


@pytest.mark.parametrize("size", [0, 104, 192, 512])
def test_older_and_newer_kernels_say_less_and_more(size: int) -> None:
    sample = tcp_info.parse(packed().ljust(size, b"\xff")[:size], 1, 0.0)
    assert sample.rtt_s == (0.0205 if size > 100 else 0.0)
    assert sample.bytes_retrans == (42_000 if size > 210 else 0)


def test_of_a_real_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        ours.sendall(b"x" * 100_000)
        left = 100_000
        while left:
            left -= len(theirs.recv(left))
        theirs.sendall(b".")
        assert ours.recv(1) == b"."
        sample = tcp_info.sample(ours, 7, 1.0)
        least_s = tcp_info.least_rtt_s(ours)
    assert 100_000 <= sample.bytes_acked <= 100_001  # the SYN counts
    assert sample.unsent_bytes == 0
    assert 0 < least_s <= sample.rtt_s < 1
    assert 0 <= sample.busy_s < 10  # in ticks
