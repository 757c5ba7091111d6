"""Nodes at the two ends of an emulated link, each in its region's network namespace."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transport_rig import LAYOUT, Events, arrays

import prfaas_netem
from prfaas_netem import LinkSpec, Topology
from prfaas_transport import Memory, ReceiveNode, SendNode, TransportConfig

LINK = LinkSpec.parse(rate="200mbit", rtt="20ms")
CUT = LINK.merged({"loss": 1.0})


@dataclass
class Regions:
    """Two namespaces and the link between them."""

    topology: Topology
    control: Path

    def cut(self) -> None:
        prfaas_netem.set_link(self.control, CUT)

    def restore(self) -> None:
        prfaas_netem.set_link(self.control, LINK)


@contextmanager
def linked_regions(folder: Path, link: LinkSpec, letter: str) -> Iterator[Regions]:
    """Make two namespaces and the link between them; the letter tells their names from others'."""
    topology = Topology.plan(deployment=f"{letter}{os.getpid()}", link=link)
    file, control = folder / "topology.json", folder / "control"
    try:
        prfaas_netem.create(topology)
        topology.save(file)
        argv = [sys.executable, "-m", "prfaas_netem.link", "--topology", str(file)]
        with subprocess.Popen(
            [*argv, "--control", str(control)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            json.loads(process.stdout.readline())
            yield Regions(topology, control)
            process.send_signal(signal.SIGTERM)
    finally:
        prfaas_netem.remove(topology)


@pytest.fixture(scope="session")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Regions]:
    with linked_regions(tmp_path_factory.mktemp("link"), LINK, "o") as made:
        yield made


class Side:
    """A node whose threads and sockets live in a region's namespace."""

    def __init__(self, regions: Regions, region: str, *, liveness_s: float = 10.0) -> None:
        host = regions.topology.address(region)
        is_sender = region == "a"
        self.arrays = arrays(LAYOUT, 1 if is_sender else None)
        self.events = Events()
        shared: dict[str, Any] = {
            "layout": LAYOUT,
            "memory": Memory(LAYOUT, self.arrays),
            "config": TransportConfig(lanes=8, liveness_s=liveness_s),
            "on_event": self.events,
        }
        self.node: Any
        with prfaas_netem.inside(regions.topology.namespace(region)):
            if is_sender:
                self.node = SendNode(node_id="prefill", host=host, **shared)
            else:
                self.node = ReceiveNode(node_id="decode", source_host=host, **shared)

    def received_bytes(self) -> int:
        return int(self.node.stats()["payload_bytes_received_total"])
