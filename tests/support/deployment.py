"""A real deployment of two emulated regions, made and destroyed through `prfaasctl`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ports import free_port

from prfaas_netem import Topology, wan_bytes
from prfaas_transport import read_stats

DEPLOY_TIMEOUT_S = 300
REQUEST_TIMEOUT_S = 120.0
PRFAASCTL = Path(sys.executable).with_name("prfaasctl")


def prfaasctl(*args: str, timeout_s: float = DEPLOY_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run `prfaasctl` and return what it printed; never raises for its exit status."""
    return subprocess.run(
        [str(PRFAASCTL), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@dataclass
class Answer:
    """What the gateway said: status, headers (lower case), body bytes."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body of an answer that is not a stream."""
        return dict(json.loads(self.body))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON events of a stream that ended as it should."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        assert lines, self.body[:500]
        assert lines[-1] == "[DONE]", lines[-1]
        return [json.loads(line) for line in lines[:-1]]

    @property
    def route(self) -> str:
        """Which way the request went."""
        return self.headers.get("x-prfaas-route", "")


@dataclass
class Deployment:
    """One deployment under a name of its own; all methods act from outside, as a user would."""

    name: str
    state_dir: Path
    model: Path
    port: int = field(default_factory=free_port)

    @property
    def directory(self) -> Path:
        """Where its sockets, logs and state files are."""
        return self.state_dir / self.name

    @property
    def url(self) -> str:
        """The API's base."""
        return f"http://127.0.0.1:{self.port}"

    def ctl(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a `prfaasctl` command on this deployment."""
        words = command.split()
        return prfaasctl(*words, *args, "--name", self.name, "--state-dir", str(self.state_dir))

    def deploy(self, *args: str) -> dict[str, Any]:
        """Deploy regions a and b, and return the JSON document; fails if it did not work."""
        options = ["--regions", "a,b", "--model", str(self.model), "--port", str(self.port)]
        done = self.ctl("deploy", *options, "--json", *args)
        assert done.returncode == 0, done.stderr[-4000:]
        return dict(json.loads(done.stdout))

    def destroy(self) -> None:
        """Destroy it; fails if that did not work."""
        done = self.ctl("destroy")
        assert done.returncode == 0, done.stderr[-4000:]

    def post(self, path: str, body: dict[str, Any], timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """POST JSON to the gateway."""
        return self.request(path, json.dumps(body).encode(), timeout_s)

    def request(
        self, path: str, data: bytes | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Answer:
        """Send a request to the gateway; an HTTP error is an answer like any other."""
        request = urllib.request.Request(
            self.url + path, data, {"content-type": "application/json"} if data else {}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return Answer(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _lower(error.headers), error.read())

    def generate(self, prompt: list[int], *, tokens: int, stream: bool = False) -> Answer:
        """Ask /generate for a greedy continuation of token ids."""
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        body = {"input_ids": prompt, "sampling_params": sampling, "stream": stream}
        return self.post("/generate", body)

    def wan_bytes(self) -> dict[str, int]:
        """Return the counters of region b's WAN interface."""
        topology = Topology.plan(deployment=self.name)
        return dict(wan_bytes(topology, "b"))

    def stats(self, node: str) -> dict[str, Any]:
        """Return a node's own transfer counters."""
        return read_stats(self.directory / f"{node}.stats.sock", timeout_s=5)

    def engine_pid(self, node: str) -> int:
        """Return the process group of a node's engine."""
        text = (self.directory / f"{node}.engine.json").read_text()
        return int(json.loads(text)["process"]["pid"])

    def process_pid(self, name: str) -> int:
        """Return the pid of a process that the supervisor runs."""
        return int(json.loads(self.ctl("status", "--json").stdout)["processes"][name]["pid"])

    def kill_engine(self, node: str) -> int:
        """kill -9 a node's whole engine and return the pid it had."""
        pid = self.engine_pid(node)
        os.killpg(pid, signal.SIGKILL)
        return pid


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """Poll until `condition()` holds; fails naming `what`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, KeyError, ValueError):
            if condition():
                return
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def leftovers(name: str, directory: Path) -> list[str]:
    """Return every namespace, mount and process that still belongs to a deployment."""
    found = [path.name for path in Path("/run/netns").glob(f"prfaas-{name}-*")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if name in line]
    marker = f"PRFAAS_DEPLOYMENT={directory}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if marker in environ.read_bytes().split(b"\0"):
                found.append(environ.parent.name)
    return found


@contextlib.contextmanager
def deployed(deployment: Deployment, *args: str) -> Iterator[Deployment]:
    """Deploy, hand out, destroy, and prove that nothing is left."""
    try:
        deployment.deploy(*args)
        yield deployment
    finally:
        deployment.destroy()
    assert not deployment.directory.exists()
    assert leftovers(deployment.name, deployment.directory) == []
