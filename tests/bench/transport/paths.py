"""The network paths that the contenders run over, each in namespaces of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import prfaas_netem
from prfaas_netem import LinkSpec, Topology
from prfaas_netem.topology import WAN_INTERFACE


def congestion_controls() -> list[str]:
    """Return those that the kernel has."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


LOSS_TOLERANT = "bbr" if "bbr" in congestion_controls() else "cubic"
"""For links that lose packets, where cubic gives up what there is."""


@dataclass(frozen=True)
class NetworkPath:
    """Two namespaces and the addresses in them; data flows from the first to the second."""

    namespaces: tuple[str, str]
    hosts: tuple[str, str]
    interface: str
    topology: Topology | None = None
    control: Path | None = None

    def use_congestion_control(self, name: str) -> None:
        """Set what every socket gets that does not ask for another: by the routes.

        A namespace other than the first does not take every name as its default.
        """
        for namespace in self.namespaces:
            argv = ["ip", "-n", namespace, "route", "show"]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            for route in done.stdout.splitlines():
                words = route.partition(" congctl ")[0].split()
                _ip("-n", namespace, "route", "change", *words, "congctl", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def veth(rate: str = "") -> Iterator[NetworkPath]:
    """Two namespaces joined by a plain veth pair; `rate` shapes it in the kernel (htb)."""
    pid = os.getpid()
    names = f"prfaas-bench{pid}-x", f"prfaas-bench{pid}-y"
    hosts = "10.214.0.1", "10.214.0.2"
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", names[0], "link", "add", "p", "type", "veth", "peer", "p", "netns", names[1])
        for name, host in zip(names, hosts, strict=True):
            _ip("-n", name, "addr", "add", f"{host}/24", "dev", "p")
            _ip("-n", name, "link", "set", "p", "up")
            _large_buffers(name)
            if rate:
                _shape(name, rate)
        yield NetworkPath(names, hosts, "p")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def _large_buffers(name: str) -> None:
    with prfaas_netem.inside(name):
        for which in ("tcp_rmem", "tcp_wmem"):
            path = Path("/proc/sys/net/ipv4") / which
            low, middle, _ = path.read_text().split()
            path.write_text(f"{low} {middle} {64 << 20}")


def _shape(name: str, rate: str) -> None:
    tc = [
        "tc",
        "-n",
        name,
        "qdisc",
        "add",
        "dev",
        "p",
        "root",
        "handle",
        "1:",
        "htb",
        "default",
        "1",
    ]
    subprocess.run(tc, check=True)
    burst = ["burst", "2mb", "cburst", "2mb"]
    tc = ["tc", "-n", name, "class", "add", "dev", "p", "parent", "1:", "classid", "1:1", "htb"]
    subprocess.run([*tc, "rate", rate, *burst], check=True)


@contextlib.contextmanager
def emulated(link: LinkSpec) -> Iterator[NetworkPath]:
    """Two regions of the project's own emulated link."""
    topology = Topology.plan(deployment=f"bench{os.getpid()}", link=link)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.callback(prfaas_netem.remove, topology)
        prfaas_netem.create(topology)
        file, control = Path(folder) / "topology.json", Path(folder) / "control.sock"
        topology.save(file)
        argv = [sys.executable, "-m", "prfaas_netem.link", "--topology", str(file)]
        process = subprocess.Popen(
            [*argv, "--control", str(control)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(_end, process)
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        names = topology.namespace("a"), topology.namespace("b")
        hosts = topology.address("a"), topology.address("b")
        yield NetworkPath(names, hosts, WAN_INTERFACE, topology, control)


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()
