"""Real SGLang engines for tests: forked from one process that has SGLang imported."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ports import free_port

from prfaas_agent.model_facts import read_model_facts
from prfaas_agent.process import identify, session_members
from prfaas_agent.sglang_args import cpu_environment, plain_arguments
from prfaas_agent.shared_memory import remove_shared_files, shared_files
from prfaas_cpu.forkserver import spawn
from prfaas_transport import read_stats

START_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Engine:
    """One running SGLang server on loopback; `bootstrap_port` is 0 unless it prefills."""

    pid: int
    port: int
    log: Path
    bootstrap_port: int = 0

    @property
    def url(self) -> str:
        """Its HTTP base."""
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End the engine's whole process group at once, and remove what SGLang then leaves."""
        process = identify(self.pid)
        shared = shared_files(session_members(process)) if process else set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        remove_shared_files(shared)

    def wait_healthy(self) -> None:
        """Return once it serves; fail with the end of its log if it dies or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not Path(f"/proc/{self.pid}").exists():
                break
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}/health", timeout=3) as answer,
            ):
                if answer.status == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(f"engine did not start:\n{self.log.read_text()[-3000:]}")


class EngineStarter:
    """Starts engines on loopback through a fork server that runs already."""

    def __init__(self, socket_path: Path, directory: Path) -> None:
        self.socket_path = socket_path
        self._directory = directory

    def start(
        self,
        model: Path,
        *,
        name: str,
        extra: Sequence[str] = (),
        bootstrap_port: int = 0,
        **env: str,
    ) -> Engine:
        """Start one engine on a free loopback port; does not wait for it."""
        port = free_port()
        log = self._directory / f"{name}.log"
        arguments = plain_arguments(
            model_path=str(model),
            model_id=model.name,
            host="127.0.0.1",
            port=port,
            facts=read_model_facts(model),
            extra=["--nccl-port", str(free_port()), *extra],
        )
        pid = spawn(
            self.socket_path,
            argv=arguments,
            env=dict(os.environ) | cpu_environment(host="127.0.0.1", interface="lo") | env,
            netns=None,
            stdout_path=log,
        )
        return Engine(pid, port, log, bootstrap_port)

    def start_prefill(
        self,
        model: Path,
        *,
        name: str,
        transfer: dict[str, Any],
        extra: Sequence[str] = (),
        **env: str,
    ) -> Engine:
        """Start a prefill engine with the plugin's transfer settings."""
        port = free_port()
        flags = ["--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "prfaas"]
        flags += ["--disaggregation-bootstrap-port", str(port), *extra]
        return self.start(
            model,
            name=name,
            extra=flags,
            bootstrap_port=port,
            PRFAAS_NODE=name,
            PRFAAS_TRANSFER=json.dumps(transfer),
            PRFAAS_STATS_SOCKET=str(self._directory / f"{name}.stats"),
            **env,
        )

    def start_decode(
        self, model: Path, *, name: str, extra: Sequence[str] = (), **env: str
    ) -> Engine:
        """Start a decode engine."""
        flags = ["--disaggregation-mode", "decode", "--disaggregation-transfer-backend", "prfaas"]
        flags += ["--disaggregation-decode-retraction-backup", "cpu_tensor", *extra]
        return self.start(
            model,
            name=name,
            extra=flags,
            PRFAAS_NODE=name,
            PRFAAS_STATS_SOCKET=str(self._directory / f"{name}.stats"),
            **env,
        )

    def start_switchable(self, model: Path, *, name: str, role: str) -> Engine:
        """Start an engine that can change its role: the arguments of both, and a decode cache."""
        port = free_port()
        extra = ["--disaggregation-mode", role, "--disaggregation-transfer-backend", "prfaas"]
        extra += ["--disaggregation-bootstrap-port", str(port), "--enable-pd-role-switch"]
        extra += ["--disaggregation-decode-enable-radix-cache"]
        extra += ["--disaggregation-decode-retraction-backup", "cpu_tensor"]
        return self.start(
            model,
            name=name,
            extra=extra,
            bootstrap_port=port,
            PRFAAS_NODE=name,
            PRFAAS_STATS_SOCKET=str(self._directory / f"{name}.stats"),
        )

    def stats(self, name: str) -> dict[str, Any]:
        """Return the transfer counters of an engine by its name."""
        return read_stats(self._directory / f"{name}.stats", timeout_s=5)

    @contextlib.contextmanager
    def running(self, *engines: Engine) -> Iterator[None]:
        """Wait for engines, and end them all in the end."""
        try:
            for engine in engines:
                engine.wait_healthy()
            yield
        finally:
            for engine in engines:
                engine.kill()


class ForkServerProcess(EngineStarter):
    """The CPU kit's fork server, for the length of a test session."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "forkserver.sock", directory)
        self._log = (directory / "forkserver.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "prfaas_cpu.forkserver", "--socket", str(self.socket_path)],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise AssertionError((directory / "forkserver.log").read_text()[-3000:])

    def close(self) -> None:
        """End the fork server; engines are ended by those who started them."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.terminate()
        self._process.wait(10)
        self._log.close()


def post(url: str, body: dict[str, Any], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, Any]:
    """POST JSON and return the JSON answer; an HTTP error becomes its own body."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.code, "body": error.read().decode(errors="replace")}


def generate(url: str, prompt: list[int], *, tokens: int, **fields: Any) -> list[int]:
    """Return the greedy continuation of `prompt` (token ids) by `url`'s /generate."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    answer = post(f"{url}/generate", {"input_ids": prompt, "sampling_params": sampling, **fields})
    assert "output_ids" in answer, answer
    return list(answer["output_ids"])


def generate_pair(
    prefill: Engine, decode: Engine, prompt: list[int], *, tokens: int, room: int
) -> list[int]:
    """Send both legs of a request by hand, without a gateway, and return the decode's tokens."""
    legs = {
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": room,
    }
    with ThreadPoolExecutor(1) as pool:
        prefill_leg = pool.submit(generate, prefill.url, prompt, tokens=tokens, **legs)
        answer = generate(decode.url, prompt, tokens=tokens, **legs)
        prefill_leg.result()
    return answer
