"""Run a playbook: progress on stderr, everything in a log, failures as lines of ours."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prfaas.errors import PreflightError, StateError
from prfaas_cli.output import Output

_TASK = re.compile(r"^(?:TASK|RUNNING HANDLER) \[(?:(?P<role>[^:\]]+) : )?(?P<name>.+)\] \*+$")
_FATAL = re.compile(r"^(?:fatal|failed): \[([^\]]+)\][^{]*(?:(FAILED|UNREACHABLE)! )?=> (\{.*)$")
_RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)")
_MESSAGE = re.compile(r'"(msg|stderr)": ("(?:[^"\\]|\\.)*")')
_INVENTORY_TIMEOUT_S = 60.0
_MAX_FAILURES = 20
_END_S = 20.0


@dataclass(slots=True)
class Played:
    """What a playbook did: changed tasks by host, and what failed on which host."""

    changed: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    task: str = ""

    @property
    def total_changed(self) -> int:
        """Changed tasks of all hosts together."""
        return sum(self.changed.values())

    def take(self, line: str) -> str | None:
        """Take one line of the output; return the name of a task that begins."""
        task = _TASK.match(line)
        if task is not None:
            self.task = f"{task['role']}: {task['name']}" if task["role"] else task["name"]
            return self.task
        recap = _RECAP.match(line)
        if recap is not None:
            self.changed[recap[1]] = int(recap[3])
        fatal = _FATAL.match(line)
        if fatal is not None and len(self.failures) < _MAX_FAILURES:
            self.failures.append(f"host {fatal[1]}: {self.task}: {_message(fatal[3])}")
        return None


def playbooks() -> Path:
    """Return the folder of the playbooks: of this source tree, or what the package brought.

    Raises:
        PreflightError: there is none.
    """
    for folder in (
        Path(__file__).parents[2] / "ansible",
        Path(sys.prefix) / "share" / "prfaas" / "ansible",
    ):
        if (folder / "site.yml").exists():
            return folder
    raise PreflightError("the playbooks are not installed; install the package prfaas again")


def read_inventory(path: Path) -> dict[str, Any]:
    """Return what ansible makes of an inventory: groups, and `_meta.hostvars`.

    Raises:
        PreflightError: ansible is not installed.
        StateError: the inventory cannot be read.
    """
    try:
        done = subprocess.run(
            [_program("ansible-inventory"), "-i", str(path), "--list"],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INVENTORY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = f"ansible-inventory gave no answer in {_INVENTORY_TIMEOUT_S:g} s"
        raise StateError(f"--inventory {path}: {text}") from None
    if done.returncode:
        raise StateError(f"--inventory {path}: {done.stderr.strip()[-500:]}")
    return dict(json.loads(done.stdout))


def play(
    playbook: str,
    inventory: Path,
    variables: Mapping[str, Any],
    *,
    log: Path,
    output: Output,
    arguments: Sequence[str] = (),
    timeout_s: float,
) -> Played:
    """Run a playbook and return what it did; the log gets all it says.

    Raises:
        StateError: with what failed first, and where the log is.
    """
    argv = [_program("ansible-playbook"), "-i", str(inventory), str(playbooks() / playbook)]
    argv += ["-e", json.dumps(dict(variables)), *arguments]
    played = Played()
    with (
        log.open("w", encoding="utf-8", buffering=1) as file,
        subprocess.Popen(
            ["timeout", "--kill-after=10", f"{timeout_s:.0f}", *argv],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                file.write(line)
                task = played.take(line.rstrip("\n"))
                if task is not None:
                    output.step(task)
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise StateError(_failure(played, process.returncode, log))
    return played


def _end(process: "subprocess.Popen[str]") -> None:
    """End a playbook that nobody waits for any more: `timeout` hands on what it gets, and has a
    process group of its own, so that no Ctrl-C of the terminal reaches it."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _failure(played: Played, status: int, log: Path) -> str:
    first = played.failures[0] if played.failures else f"ansible-playbook ended with {status}"
    others = {line.split(":", 1)[0] for line in played.failures} - {first.split(":", 1)[0]}
    more = f" (and {len(others)} more)" if others else ""
    return f"{first}{more}; what is done stays: run the command again to go on; see {log}"


def _message(result: str) -> str:
    """Return what a result says went wrong: of a command, what it wrote."""
    found = dict(_MESSAGE.findall(result))
    written = str(json.loads(found.get("stderr", '""'))).strip()
    if written:
        return written.splitlines()[-1]
    return str(json.loads(found["msg"])) if "msg" in found else result[:200]


def _program(name: str) -> str:
    from prfaas_cli.preflight import find_program

    found = find_program(name)
    if found is None:
        raise PreflightError(f"{name} is not installed; run pip install 'prfaas[ansible]'")
    return found


def _environment() -> dict[str, str]:
    """Return an environment in which only our own settings of ansible hold."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    return kept | {"ANSIBLE_CONFIG": str(playbooks() / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
