"""Processes of a contender, talked to in JSON lines."""

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prfaas_netem import run_in

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Environment:
    """The interpreter and the variables of a process.

    What a chatty one logs is dropped. One that sees its own devices finds those of its namespace,
    not the machine's, in /sys.
    """

    python: str = sys.executable
    variables: dict[str, str] = field(default_factory=dict)
    is_chatty: bool = False
    sees_own_devices: bool = False


OURS = Environment()
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # numpy starts no pool whose threads spin for a while


class Endpoint:
    """A process in a namespace that says one JSON line, then answers JSON lines with JSON lines."""

    def __init__(
        self, namespace: str, script: str, *arguments: str, environment: Environment = OURS
    ) -> None:
        argv = [environment.python, str(HERE / script), *arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        variables = {**os.environ, **ONE_THREAD, **environment.variables}
        pipes["stderr"] = subprocess.DEVNULL if environment.is_chatty else None
        if environment.sees_own_devices:
            argv = ["ip", "netns", "exec", namespace, *argv]
        self.process = run_in(namespace, argv, text=True, env=variables, **pipes)
        self.hello = self._answer(30)

    def ask(self, do: str, timeout_s: float = 90, **fields: Any) -> dict[str, Any]:
        self.put(do, **fields)
        return self._answer(timeout_s)

    def put(self, do: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self.process.stdin.flush()

    def answer(self, timeout_s: float = 90) -> dict[str, Any]:
        return self._answer(timeout_s)

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError(f"{self.process.args}: no answer in {timeout_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args}: ended")
        return json.loads(line)


@dataclass(frozen=True)
class Certificates:
    """What either side of TLS lanes needs: `ca`, `cert`, `key` and `deployment`."""

    send: dict[str, str]
    receive: dict[str, str]


def lanes_pair(
    namespaces: tuple[str, str],
    hosts: tuple[str, str],
    config: dict[str, Any],
    *,
    is_cold: bool = False,
    certificates: Certificates | None = None,
) -> tuple[Endpoint, Endpoint]:
    """Return a sender in the first namespace and a receiver in the second.

    They are connected, except cold ones.
    """
    setting: dict[str, Any] = {"config": config, "is_cold": is_cold}
    if certificates:
        setting["tls"] = certificates.send
    send = Endpoint(namespaces[0], "lanes_endpoint.py", "send", hosts[0], json.dumps(setting))
    setting["address"] = [hosts[0], send.hello["port"]]
    if certificates:
        setting["tls"] = certificates.receive
    try:
        args = ("receive", hosts[1], json.dumps(setting))
        return send, Endpoint(namespaces[1], "lanes_endpoint.py", *args)
    except BaseException:
        send.close()
        raise
