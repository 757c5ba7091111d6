"""One engine: an SGLang process group that outlives its agent, and the file that names it."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from prfaas.config import NodeConfig
from prfaas.errors import PreflightError, PrfaasError
from prfaas.records import NodeRecord
from prfaas_agent import process as processes
from prfaas_agent.process import ProcessId
from prfaas_agent.shared_memory import listed_files, remove_shared_files, shared_files
from prfaas_agent.state_file import read_json, write_json

STOP_GRACE_S = 10.0
#: How long an engine that lost a worker may take: SGLang would wait for requests it cannot finish.
BROKEN_GRACE_S = 1.0
#: What Python's multiprocessing starts for itself; an engine can do without them.
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

#: Start SGLang with arguments, environment, log file and working directory; return the process id.
#: Raises PrfaasError when it cannot.
Launch = Callable[[Sequence[str], Mapping[str, str], Path, Path], int]


@dataclass(frozen=True, slots=True)
class Engine:
    """A started engine. `session` is new for every start; `started_at_s` is wall-clock time.

    `record` is what it was registered as, None while it never was healthy; `shared_files` is what
    it must not leave behind; `workers` are the processes without which it cannot serve.
    """

    process: ProcessId
    session: str
    arguments: tuple[str, ...]
    started_at_s: float
    record: NodeRecord | None = None
    shared_files: tuple[str, ...] = ()
    workers: tuple[ProcessId, ...] = ()


class EngineFiles:
    """Where one node keeps what concerns its engine, below the node's state directory."""

    def __init__(self, config: NodeConfig) -> None:
        root = Path(config.node.state_dir).absolute()
        name = config.node.name
        self.record = root / f"{name}.engine.json"
        self.agent = root / f"{name}.agent.json"
        self.role = root / f"{name}.role.json"
        self.control = root / f"{name}.agent.sock"
        self.log = root / "logs" / f"{name}.engine.log"
        #: The engine's working directory: nobody else's, so it also tells whose an engine is.
        self.home = root / f"{name}.engine"

    def prepare(self) -> None:
        """Make the directories.

        Raises:
            PreflightError: they cannot be made.
        """
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            root = self.home.parent
            raise PreflightError(f"node.state_dir {root}: {error.strerror}") from None


def start(files: EngineFiles, launch: Launch, *, arguments: Sequence[str]) -> Engine:
    """Start an engine and write its file.

    Raises:
        PrfaasError: it could not be started.
    """
    try:
        pid = launch(arguments, dict(os.environ), files.log, files.home)
    except OSError as error:
        raise PrfaasError(f"the engine cannot be started: {files.log}: {error.strerror}") from None
    process = processes.identify(pid)
    if process is None:
        raise PrfaasError(f"the engine ended at once; see {files.log}")
    engine = Engine(process, uuid.uuid4().hex, tuple(arguments), time.time())
    try:
        write(files, engine)
    except PrfaasError:
        # Nobody would know it again.
        processes.end_session(process, grace_s=0.0)
        raise
    return engine


def write(files: EngineFiles, engine: Engine) -> None:
    """Write an engine's file.

    Raises:
        PrfaasError: it cannot be written, as on a full disk.
    """
    try:
        write_json(files.record, asdict(engine))
    except OSError as error:
        raise PrfaasError(f"cannot write {files.record}: {error.strerror}") from None


def find_running(files: EngineFiles) -> Engine | None:
    """Return the engine that an earlier agent of this node started, if it still runs."""
    raw = read_json(files.record)
    if raw is None:
        return None
    try:
        engine = Engine(
            process=ProcessId(**raw["process"]),
            session=str(raw["session"]),
            arguments=tuple(raw["arguments"]),
            started_at_s=float(raw["started_at_s"]),
            record=NodeRecord(**raw["record"]) if raw.get("record") else None,
            shared_files=tuple(raw.get("shared_files", ())),
            workers=tuple(ProcessId(**item) for item in raw.get("workers", ())),
        )
    except (KeyError, TypeError, ValueError):
        return None
    return engine if processes.is_alive(engine.process) else None


def find_workers(engine: Engine) -> tuple[ProcessId, ...]:
    """Return the live processes without which an engine cannot serve: schedulers, detokenizers.

    They are known by what they are, not by name, which depends on how the engine was started:
    direct children that run the same program and are none of multiprocessing's own. What SGLang
    calls for a moment (a compiler, `lscpu`) is another program.
    """
    ours = processes.program(engine.process)
    return tuple(
        child
        for child in processes.children(engine.process)
        if processes.program(child) == ours and not _is_helper(child)
    )


def _is_helper(process: ProcessId) -> bool:
    line = processes.command_line(process)
    return any(helper in line for helper in _HELPERS)


def end(engine: Engine, files: EngineFiles, *, grace_s: float = STOP_GRACE_S) -> None:
    """Stop an engine with all its processes and forget it. Blocks for `grace_s` and 2 seconds."""
    shared = shared_files(processes.session_members(engine.process))
    left = processes.end_session(engine.process, grace_s=grace_s)
    remove_shared_files(shared | listed_files(read_json(files.record)))
    files.record.unlink(missing_ok=True)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise PrfaasError(f"engine processes {pids} do not end")


def end_strays(files: EngineFiles) -> int:
    """End engines of this node that no file names: an agent died between start and record."""
    recorded = find_running(files)
    ours = processes.session_members(recorded.process) if recorded else []
    strays = [
        process
        for process in processes.all_processes()
        if process.pid != os.getpid() and process not in ours and _works_in(process, files.home)
    ]
    processes.end_processes(strays, grace_s=STOP_GRACE_S)
    return len(strays)


def cold_launch(module: str) -> Launch:
    """Return the launch that runs a module in a Python of its own; slow, needs nothing."""

    def launch(
        arguments: Sequence[str], environment: Mapping[str, str], log: Path, home: Path
    ) -> int:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=dict(environment),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # The agent watches it as it watches an adopted one; `reap` collects it.
        process.returncode = 0
        return process.pid

    return launch


def reap() -> None:
    """Collect ended children, so that none stays a zombie."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def _works_in(process: ProcessId, home: Path) -> bool:
    try:
        return Path(f"/proc/{process.pid}/cwd").readlink() == home
    except OSError:
        return False
