"""Engine twins for tests, in processes of their own, as an agent starts them."""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prfaas.config import EngineSection, NodeConfig, NodeSection, render_node_config
from prfaas.records import Role
from prfaas.transfer_section import TransferSection
from prfaas.twin_section import EngineKind, TwinSection

START_TIMEOUT_S = 30.0
#: Below the ports that the kernel gives to whoever dials: lanes of other twins would take them.
_PORTS = (18_000, 32_000)
_given: set[int] = set()


def listening_port() -> int:
    """Return a loopback port that nobody has right now, and that nobody gets by chance."""
    choice = random.SystemRandom()
    while True:
        port = choice.randrange(*_PORTS)
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            _given.add(port)
            return port


def twin_config(
    name: str,
    role: Role,
    *,
    model: Path,
    state_dir: Path,
    twin: TwinSection | None = None,
    role_switch: bool = False,
    **transfer: Any,
) -> NodeConfig:
    """Return the configuration of a twin on free loopback ports."""
    return NodeConfig(
        node=NodeSection(
            name=name, role=role, region="a", port=listening_port(), state_dir=str(state_dir)
        ),
        engine=EngineSection(
            model_path=str(model),
            engine=EngineKind.TWIN,
            device="cpu",
            bootstrap_port=listening_port(),
            role_switch=role_switch,
            decode_cache=role_switch,
        ),
        twin=twin or TwinSection(dilation=0.02),
        transfer=replace(TransferSection(lanes=2), **transfer),
    )


@dataclass(frozen=True)
class TwinProcess:
    """One process with one or more twins; `configs` in the order given."""

    process: "subprocess.Popen[bytes]"
    configs: tuple[NodeConfig, ...]
    log: Path

    @property
    def port(self) -> int:
        """HTTP port of the first twin."""
        return self.configs[0].node.port

    @property
    def url(self) -> str:
        """HTTP base of the first twin."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def bootstrap_port(self) -> int:
        """Bootstrap port of the first twin."""
        assert self.configs[0].engine is not None
        return self.configs[0].engine.bootstrap_port

    @property
    def admin_socket(self) -> Path:
        """Where the first twin takes faults."""
        node = self.configs[0].node
        return Path(node.state_dir) / f"{node.name}.twin.sock"

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """Ask it to end, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def wait_healthy(self) -> None:
        """Return once all of it serves."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if all(_status(config.node.port, "/health") == 200 for config in self.configs):
                    return
            time.sleep(0.05)
        raise AssertionError(f"twin did not start:\n{self.log.read_text()[-3000:]}")


def start_twins(*configs: NodeConfig) -> TwinProcess:
    """Start a process that runs these twins; does not wait for it."""
    log = Path(configs[0].node.state_dir) / f"{configs[0].node.name}.log"
    argv = [sys.executable, "-m", "prfaas_twin"]
    for config in configs:
        argv += ["--config-text", render_node_config(config)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    return TwinProcess(process, configs, log)


@contextlib.contextmanager
def running(*twins: TwinProcess) -> Iterator[None]:
    """Wait for twins, and end them all in the end."""
    try:
        for twin in twins:
            twin.wait_healthy()
        yield
    finally:
        for twin in twins:
            twin.kill()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


def inject(twin: TwinProcess, **faults: Any) -> dict[str, Any]:
    """Inject faults; a crash answers nothing."""
    connection = _UnixConnection(twin.admin_socket)
    try:
        connection.request("POST", "/faults", json.dumps(faults))
        return dict(json.loads(connection.getresponse().read()))
    except (OSError, http.client.HTTPException):
        return {}
    finally:
        connection.close()


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()
