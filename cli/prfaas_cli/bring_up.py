"""The steps of `deploy` that touch the machine, and the wait until all of it serves."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prfaas.errors import StateError
from prfaas_cli.credentials import write_credentials
from prfaas_cli.observation import Observed
from prfaas_cli.options import DeployOptions
from prfaas_cli.output import Output
from prfaas_cli.place import MARKER, Place
from prfaas_cli.process_plan import DeployPlan, etcd_name
from prfaas_cli.processes import read_supervisor
from prfaas_cli.spawn import Popen, tail

_POLL_S = 0.25
_NOTE_EVERY_S = 10.0
_FAILURES_ALLOWED = 2
_LOG_LINES = 15


@dataclass(slots=True)
class Milestone:
    """Something that must come true; `done_s` is when it did, 0 while it has not."""

    text: str
    holds: Callable[[], bool]
    done_s: float = 0.0


@dataclass(slots=True)
class BringUp:
    """One deploy under way; `times` says where the time went, in seconds since the begin."""

    place: Place
    output: Output
    times: dict[str, float] = field(default_factory=dict)

    def write_files(self, plan: DeployPlan, options: DeployOptions, *, fresh: bool) -> None:
        """Write what the processes read.

        Raises:
            StateError: it cannot be written.
        """
        try:
            self._write_files(plan, options, fresh=fresh)
        except OSError as error:
            where = error.filename or self.place.directory
            raise StateError(f"cannot write {where}: {error.strerror}") from None

    def _write_files(self, plan: DeployPlan, options: DeployOptions, *, fresh: bool) -> None:
        """The deployment's file comes first: destroy needs it."""
        self.place.logs.mkdir(exist_ok=True)
        if fresh:
            for old in self.place.logs.iterdir():
                old.unlink()
        self.place.write_deployment(
            {
                "options": options.to_json(),
                "processes": [spec.to_json() for spec in plan.processes],
                "created_at_s": time.time(),
            }
        )
        if fresh or not self.place.topology_file.exists():
            # Not otherwise: `link set` keeps its changes there.
            plan.topology.save(self.place.topology_file)
        write_credentials(self.place, options, plan.nodes, etcd=etcd_name(options))
        for node, text in plan.config_texts().items():
            self.place.config_file(node).write_text(text)

    def make_regions(self, plan: DeployPlan) -> None:
        """Make the namespaces, or what is missing of them."""
        from prfaas_netem import create

        if create(plan.topology):
            self._done("regions and wires")

    def start_supervisor(self) -> None:
        """Start the supervisor and wait until it runs."""
        try:
            process = self._spawn_supervisor()
        except OSError as error:
            where = error.filename or self.place.directory
            raise StateError(f"cannot start the supervisor: {where}: {error.strerror}") from None
        deadline_s = time.monotonic() + 20.0
        while read_supervisor(self.place).get("pid") != process.pid:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise StateError("the supervisor does not start" + self._log_of("supervisor"))
            time.sleep(0.05)
        # It shall outlive this command; nobody here waits for it.
        process.returncode = 0
        self._done("supervisor")

    def _spawn_supervisor(self) -> Popen:
        self.place.logs.mkdir(exist_ok=True)
        with self.place.log("supervisor").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "prfaas_cli.supervisor"),
                    *("--state", str(self.place.directory)),
                ],
                env={**os.environ, MARKER: str(self.place.directory)},
                cwd=self.place.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self, *, timeout_s: float) -> None:
        """Wait until everything serves, telling what is done and what is waited for.

        Raises:
            StateError: a process keeps failing, or it takes too long.
        """
        observed = Observed.of(self.place)
        milestones = _milestones(observed)
        before = _failures(observed)
        said_s = self.output.elapsed_s
        while left := [item for item in milestones if not item.done_s]:
            for item in left:
                if item.holds():
                    item.done_s = self.output.elapsed_s
                    said_s = item.done_s
                    self._done(item.text)
            self._check_failures(observed, before)
            if self.output.elapsed_s > timeout_s:
                raise StateError(self._too_slow(observed, milestones, timeout_s))
            if self.output.elapsed_s - said_s > _NOTE_EVERY_S:
                said_s = self.output.elapsed_s
                self.output.step("... " + self._waiting_for(observed, milestones))
            time.sleep(_POLL_S)

    def _done(self, text: str) -> None:
        self.times[text] = round(self.output.elapsed_s, 2)
        self.output.step(text)

    def _check_failures(self, observed: Observed, before: dict[str, int]) -> None:
        """Refuse what ended too often since `before`: the totals of a long life say nothing."""
        supervisor = observed.supervisor()
        if not supervisor["alive"]:
            raise StateError("the supervisor ended" + self._log_of("supervisor"))
        for name, count in _failures(observed).items():
            node = name.removesuffix(".engine")
            if _phase(self.place, node) == "serving" or (
                count - before.get(name, 0) <= _FAILURES_ALLOWED
            ):
                continue
            last_exit = supervisor["processes"].get(name, {}).get("last_exit")
            what = name if name == node else f"the engine of {node}"
            detail = f": {last_exit}" if last_exit else ""
            raise StateError(f"{what} keeps ending{detail}" + self._log_of(name))

    def _too_slow(self, observed: Observed, milestones: list[Milestone], timeout_s: float) -> str:
        waiting = self._waiting_for(observed, milestones)
        late = [node for node in observed.engine_nodes if _phase(self.place, node) != "serving"]
        candidates = [f"{late[0]}.engine", late[0]] if late else [observed.gateway_node]
        written = [name for name in candidates if self.place.log(name).exists()]
        log = self._log_of((written or candidates)[0])
        return f"not ready after {timeout_s:g} s: {waiting}" + log

    def _waiting_for(self, observed: Observed, milestones: list[Milestone]) -> str:
        waiting = [item.text for item in milestones if not item.done_s]
        phases = [
            f"{node} is {_phase(self.place, node)}"
            for node in observed.engine_nodes
            if _phase(self.place, node) != "serving"
        ]
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        detail = f" ({'; '.join(phases)})" if phases else ""
        return f"waiting for: {waiting[0]}{more}{detail}"

    def _log_of(self, name: str) -> str:
        """Show the end of a log on stderr and return where it is; nothing if there is none."""
        path = self.place.log(name)
        lines = tail(path, lines=_LOG_LINES)
        if lines:
            self.output.note(f"--- the last lines of {path}")
            for line in lines:
                self.output.note(line)
            self.output.note("---")
        return f"; see {path}" if path.exists() else ""


def _phase(place: Place, node: str) -> str:
    state: dict[str, Any] = place.agent_state(node)
    return str(state.get("phase", "not up yet"))


def _failures(observed: Observed) -> dict[str, int]:
    """Return how often each process was started again and each engine was started."""
    entries = observed.supervisor()["processes"]
    counts = {name: _count(entry.get("restarts")) for name, entry in entries.items()}
    for node in observed.engine_nodes:
        state = observed.place.agent_state(node)
        counts[f"{node}.engine"] = _count(state.get("engine_starts"))
    return counts


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _milestones(observed: Observed) -> list[Milestone]:
    nodes = [
        Milestone(f"{node} serves", lambda node=node: _phase(observed.place, node) == "serving")  # type: ignore[misc]
        for node in observed.engine_nodes
    ]
    loaded = Milestone("SGLang loaded once, for all engines", observed.fork_server_ready)
    return [
        Milestone("link", lambda: observed.link() is not None),
        Milestone("etcd", observed.etcd_answers),
        *([] if observed.options.is_twin else [loaded]),
        *nodes,
        Milestone(
            "nodes registered", lambda: set(observed.engine_nodes) <= set(observed.nodes() or ())
        ),
        Milestone("gateway ready", lambda: observed.gateway_ready()[0]),
    ]
