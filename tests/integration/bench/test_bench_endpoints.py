"""The benchmark's own processes, in a namespace of this test: a second of lanes and of the copy."""

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest
from contenders import Plan, lanes, plain_copy
from paths import NetworkPath, congestion_controls, veth

import prfaas_netem

PLAN = Plan(0.4, 0.2, "cubic")


@pytest.fixture
def loopback() -> Iterator[NetworkPath]:
    """A path whose both ends are the loopback interface of one namespace."""
    name = f"prfaas-benchtest{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield NetworkPath((name, name), ("127.0.0.1", "127.0.0.1"), "lo")
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.root
def test_lanes_and_the_plain_copy_give_whole_readings(loopback: NetworkPath) -> None:
    ours, copied = lanes(loopback, PLAN), plain_copy(loopback, PLAN)
    for found in (ours, copied):
        assert found.num_bytes > 1 << 20
        assert 0.3 < found.seconds < 5
        assert found.send_cpu_s > 0
        assert found.receive_cpu_s > 0
    assert ours.cold_s is not None
    assert 0 < ours.cold_s < 5


@pytest.mark.root
def test_sockets_of_a_path_get_its_congestion_control() -> None:
    """Both ways: what a library that sets nothing gets must be what the others were told."""
    with veth() as path, socket_in(path.namespaces[1]) as listener:
        listener.bind((path.hosts[1], 0))
        listener.listen()
        for name in congestion_controls():
            path.use_congestion_control(name)
            with socket_in(path.namespaces[0]) as dialled:
                dialled.connect(listener.getsockname())
                accepted, _ = listener.accept()
                with accepted:
                    assert [congestion_control(s) for s in (dialled, accepted)] == [name, name]


def socket_in(namespace: str) -> socket.socket:
    with prfaas_netem.inside(namespace):
        return socket.socket()


def congestion_control(sock: socket.socket) -> str:
    found = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return found.rstrip(b"\0").decode()
