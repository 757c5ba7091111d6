"""The benchmark's own processes, in a namespace of this test: a second of lanes and of the copy."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from contenders import Plan, lanes, plain_copy
from paths import NetworkPath

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
