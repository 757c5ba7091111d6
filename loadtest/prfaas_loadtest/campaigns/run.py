"""Runs of campaigns: a folder for each, and the processes that send its load.

campaign.toml    the campaign as it was read
schedule.jsonl   all requests, before anything was sent
schedule.trace   the same in the recorded format, for `prfaasctl simulate --trace`
job.json         what the senders were told
samples.jsonl    what became of each request, as it came
link.jsonl       bytes over the link, once a second, where a deployment was measured
summary.json, report.html
"""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from prfaas.errors import ConfigError, StateError
from prfaas.workload import format_trace
from prfaas_loadtest.campaigns.job import Job, write_job
from prfaas_loadtest.workloads import Schedule, format_schedule

INTERRUPTED = 130
_TICK_S = 1.0
_MODULE = "prfaas_loadtest.campaigns.load"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def campaign(self) -> Path:
        """The campaign as it was read."""
        return self.path / "campaign.toml"

    @property
    def samples(self) -> Path:
        """What became of each request."""
        return self.path / "samples.jsonl"

    @property
    def trace(self) -> Path:
        """The schedule in the recorded format of traces."""
        return self.path / "schedule.trace"

    @property
    def link(self) -> Path:
        """Bytes over the link, once a second."""
        return self.path / "link.jsonl"

    @property
    def facts(self) -> Path:
        """What was found out of the target when the run began."""
        return self.path / "facts.json"

    @property
    def summary(self) -> Path:
        """The results."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    def prepare(self, text: str, job: Job, schedule: Schedule) -> None:
        """Make the folder with all that is known beforehand.

        Raises:
            StateError: it is there and not empty, or cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise StateError(f"{self.path}: not empty; give another --out, or remove it")
            with self.campaign.open("x") as file:  # of two runs at once, one has the folder
                file.write(text)
            write_job(job, self.path / "job.json")
            with (self.path / "schedule.jsonl").open("wb") as file:
                file.writelines(format_schedule(schedule))
            with self.trace.open("w") as lines:
                lines.writelines(format_trace(schedule.trace()))
        except OSError as error:
            raise StateError(f"{self.path}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Spread:
    """How many processes send. 0 workers: one process. Some `remote` ones of the workers are
    started elsewhere, and come to `bind`:`port`."""

    workers: int = 0
    remote: int = 0
    bind: str = "127.0.0.1"
    port: int = 5557
    web_port: int = 0


def run_load(folder: RunFolder, spread: Spread, tick: Callable[[], None]) -> int:
    """Send a prepared run's load, and call `tick` once a second meanwhile.

    Returns the exit status: 0, or 130 after SIGINT, SIGTERM or SIGHUP, which end it and keep what
    was measured. May only be called by the main thread.

    Raises:
        StateError: the load failed; its log says why.
    """
    with contextlib.ExitStack() as ended:
        lead = ended.enter_context(_started(_lead_arguments(folder, spread), None))
        for number in range(spread.workers):
            log = folder.path / f"worker-{number}.log"
            ended.enter_context(_started(worker_arguments("127.0.0.1", spread.port), log))
        with _forwarded(lead) as asked:
            status = _wait(lead, tick)
    if asked.is_set():
        return INTERRUPTED
    if status not in (0, INTERRUPTED):
        raise StateError(f"the load ended with status {status}; see the lines above")
    return status


def check_ports(spread: Spread) -> None:
    """Find out before anything is sent whether the ports that workers and the page need are free.

    Raises:
        ConfigError: one is not, or the address is none of this machine.
    """
    wanted = [("--web", "127.0.0.1", spread.web_port)] if spread.web_port else []
    if spread.workers + spread.remote:
        wanted.append(("--master-port", spread.bind, spread.port))
    for option, host, port in wanted:
        try:
            with socket.socket(socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"{option} {port} at {host}: {why}") from None


def worker_arguments(host: str, port: int) -> list[str]:
    """Return the command of a worker that gets its share from a master."""
    return [sys.executable, "-m", _MODULE, "worker", "--host", host, "--port", str(port)]


def _lead_arguments(folder: RunFolder, spread: Spread) -> list[str]:
    workers = spread.workers + spread.remote
    found = [sys.executable, "-m", _MODULE, "master" if workers else "local", str(folder.path)]
    if spread.web_port:
        found += ["--web", str(spread.web_port)]
    if workers:
        found += ["--workers", str(workers), "--port", str(spread.port), "--bind", spread.bind]
    return found


@contextlib.contextmanager
def _started(arguments: list[str], log: Path | None) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process in a session of its own, so that Ctrl-C reaches only us; end it at last.

    It begins with SIGINT blocked, and takes it when it can.
    """
    with contextlib.ExitStack() as files:
        output: Any = files.enter_context(log.open("ab")) if log else None
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output or sys.stderr,
                stderr=output,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield process
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TICK_S)
        if process.poll() is None:
            process.kill()
        process.wait()


@contextlib.contextmanager
def _forwarded(process: "subprocess.Popen[bytes]") -> Iterator[threading.Event]:
    """Give SIGINT, SIGTERM and SIGHUP to the process instead of ending at once.

    It runs in a session of its own, and would go on when our terminal closes. What `nohup` has
    ignored stays ignored.
    """
    asked = threading.Event()

    def forward(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in heard}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(process: "subprocess.Popen[bytes]", tick: Callable[[], None]) -> int:
    while True:
        tick()
        try:
            return process.wait(_TICK_S)
        except subprocess.TimeoutExpired:
            continue
