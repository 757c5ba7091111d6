"""Keep a deployment's processes running: adopt what lives, start what does not, start it again."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prfaas.errors import StateError
from prfaas_agent.process import ProcessId, end_processes, identify, is_alive, wait_exit
from prfaas_agent.state_file import write_json
from prfaas_cli.place import Place
from prfaas_cli.process_plan import LISTEN_FD, ProcessSpec
from prfaas_cli.processes import process_of, read_supervisor
from prfaas_cli.spawn import Popen, bind_listener, spawn
from prfaas_coord.backoff import Backoff

LOG_LIMIT_BYTES = 32 << 20
STOP_GRACE_S = 15.0
_LOG_CHECK_EVERY_S = 30.0
_SAVE_AGAIN_S = 1.0


@dataclass(slots=True)
class Keeping:
    """How one process stands; `pid` 0 means it does not run now."""

    argv: list[str]
    log: str
    namespace: str = ""
    pid: int = 0
    start_ticks: int = 0
    started_at_s: float = 0.0
    restarts: int = 0
    last_exit: str = ""
    adopted: bool = False


@dataclass(slots=True)
class Supervisor:
    """Keeps processes running. The single writer of the supervisor's file."""

    place: Place
    specs: Sequence[ProcessSpec]
    keepings: dict[str, Keeping] = field(default_factory=dict)
    _children: dict[str, Popen] = field(default_factory=dict)
    _listening: bool = False
    _is_saved: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        """Keep all processes until `stop` is set, then end them."""
        self._load()
        self._save()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._keep(spec), name=spec.name) for spec in self.specs]
            tasks.append(group.create_task(self._bound_logs(), name="logs"))
            tasks.append(group.create_task(self._save_again(), name="file"))
            await stop.wait()
            for task in tasks:
                task.cancel()
        await asyncio.to_thread(self._end_all)
        self._save()

    def _load(self) -> None:
        known = read_supervisor(self.place)["processes"]
        for spec in self.specs:
            log = str(self.place.log(spec.name))
            keeping = Keeping(argv=list(spec.argv), log=log, namespace=spec.namespace)
            self._adopt(keeping, known.get(spec.name, {}))
            self.keepings[spec.name] = keeping

    def _adopt(self, keeping: Keeping, known: dict[str, Any]) -> None:
        process = process_of(known)
        if process is None:
            return
        keeping.restarts = int(known.get("restarts", 0))
        if is_alive(process) and known.get("argv") == keeping.argv:
            keeping.pid, keeping.start_ticks = process.pid, process.start_ticks
            keeping.started_at_s = float(known.get("started_at_s", 0.0))
            keeping.adopted = True

    async def _keep(self, spec: ProcessSpec) -> None:
        keeping = self.keepings[spec.name]
        backoff = Backoff()
        if not keeping.adopted:
            self._start(spec, keeping)
        while True:
            began_s = time.monotonic()
            if keeping.pid:
                await wait_exit(ProcessId(keeping.pid, keeping.start_ticks))
                self._note_exit(spec, keeping)
            await asyncio.sleep(backoff.next_s(ran_s=time.monotonic() - began_s))
            keeping.restarts += 1
            self._start(spec, keeping)

    def _start(self, spec: ProcessSpec, keeping: Keeping) -> None:
        try:
            if spec.listen and not self._listening:
                bind_listener(spec.listen)
                self._listening = True
            child = spawn(self.place, spec, pass_fds=(LISTEN_FD,) if spec.listen else ())
        except StateError as error:
            keeping.pid, keeping.last_exit = 0, str(error)
            self._save()
            return
        process = identify(child.pid)
        self._children[spec.name] = child
        keeping.pid = child.pid
        keeping.start_ticks = process.start_ticks if process else 0
        keeping.started_at_s, keeping.adopted = time.time(), False
        self._save()

    def _note_exit(self, spec: ProcessSpec, keeping: Keeping) -> None:
        child = self._children.pop(spec.name, None)
        code = child.wait() if child else None
        keeping.pid = 0
        keeping.last_exit = _shown_exit(code)
        self._save()

    def _end_all(self) -> None:
        for wave in sorted({spec.stop_wave for spec in self.specs}):
            names = [spec.name for spec in self.specs if spec.stop_wave == wave]
            running = [keeping for name in names if (keeping := self.keepings[name]).pid]
            end_processes(
                [ProcessId(keeping.pid, keeping.start_ticks) for keeping in running],
                grace_s=STOP_GRACE_S,
            )
            for keeping in running:
                keeping.pid, keeping.last_exit = 0, "stopped"
        for child in self._children.values():
            with contextlib.suppress(TimeoutError):
                child.poll()

    def _save(self) -> None:
        """Write the file; if the disk is full, later: what runs matters more than what is told."""
        own = identify(os.getpid())
        assert own is not None
        processes = {name: asdict(keeping) for name, keeping in self.keepings.items()}
        try:
            write_json(self.place.supervisor_file, {**asdict(own), "processes": processes})
            self._is_saved = True
        except OSError:
            self._is_saved = False

    async def _save_again(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_AGAIN_S)
            if not self._is_saved:
                self._save()

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(_LOG_CHECK_EVERY_S)
            for path in self.place.logs.glob("*.log"):
                bound_log(path, limit_bytes=LOG_LIMIT_BYTES)


def bound_log(path: Path, *, limit_bytes: int) -> None:
    """Move what a log holds to `<name>.log.1` once it is too large.

    The file itself stays: processes hold it open and append. On a full disk it stays as it is.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size > limit_bytes:
            shutil.copyfile(path, path.with_name(path.name + ".1"))
            os.truncate(path, 0)


def _shown_exit(code: int | None) -> str:
    if code is None:
        return "ended"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
