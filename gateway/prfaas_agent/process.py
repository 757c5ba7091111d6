"""Name a process so that a reused process id is never mistaken for it, watch it, and end it.

Linux only: reads /proc and uses pidfds, which work for processes that are not our children.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process of this boot: its id and the clock tick at which it started."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    session: int
    start_ticks: int


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a live process, None when it is gone or a zombie."""
    stat = _read_stat(pid)
    return ProcessId(pid, stat.start_ticks) if stat and stat.state not in "ZX" else None


def is_alive(process: ProcessId) -> bool:
    """Return whether this very process still runs."""
    return identify(process.pid) == process


def uptime_s(process: ProcessId) -> float:
    """Return for how long a process has run."""
    up_s = float((_PROC / "uptime").read_text().split()[0])
    return max(0.0, up_s - process.start_ticks / os.sysconf("SC_CLK_TCK"))


def all_processes() -> Iterator[ProcessId]:
    """Yield the live processes of this machine."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := identify(int(entry.name))):
            yield process


def session_members(*leaders: ProcessId) -> list[ProcessId]:
    """Return the live processes of the sessions that `leaders`, dead or alive, started."""
    starts = {leader.pid: leader.start_ticks for leader in leaders}
    members = []
    for process in all_processes():
        stat = _read_stat(process.pid)
        if stat and stat.session in starts and stat.start_ticks >= starts[stat.session]:
            members.append(process)
    return members


def children(parent: ProcessId) -> list[ProcessId]:
    """Return the live direct children of a live process."""
    found = []
    for process in all_processes():
        stat = _read_stat(process.pid)
        if stat and stat.parent == parent.pid and stat.start_ticks >= parent.start_ticks:
            found.append(process)
    return found


def send_signal(process: ProcessId, number: int) -> bool:
    """Signal exactly this process; return False when it is gone."""
    with _pidfd(process) as descriptor:
        if descriptor is None:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
            return True
        return False


def program(process: ProcessId) -> str:
    """Return the path of the program file that a process runs; empty when gone."""
    try:
        return str((_PROC / str(process.pid) / "exe").readlink())
    except OSError:
        return ""


def command_line(process: ProcessId) -> str:
    """Return a process's arguments, joined by blanks; empty when gone."""
    try:
        raw = (_PROC / str(process.pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").rstrip()


async def wait_exit(process: ProcessId) -> None:
    """Return when the process has ended (a zombie has)."""
    with _pidfd(process) as descriptor:
        if descriptor is None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)


def end_processes(processes: Iterable[ProcessId], *, grace_s: float) -> list[ProcessId]:
    """Send SIGTERM, after `grace_s` SIGKILL; return those that survive even that for a second."""
    left = [process for process in processes if send_signal(process, signal.SIGTERM)]
    left = _wait_gone(left, grace_s)
    for process in left:
        send_signal(process, signal.SIGKILL)
    return _wait_gone(left, 1.0)


def end_session(leader: ProcessId, *, grace_s: float) -> list[ProcessId]:
    """End all processes of a session: the leader first, then what it leaves behind.

    Returns those that survive.
    """
    end_processes([leader], grace_s=grace_s)
    return end_processes(session_members(leader), grace_s=1.0)


def _wait_gone(processes: list[ProcessId], timeout_s: float) -> list[ProcessId]:
    deadline_s = time.monotonic() + timeout_s
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
        left = [process for process in left if is_alive(process)]
    return left


@contextmanager
def _pidfd(process: ProcessId) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        yield None
        return
    try:
        # Checked after the open: from here on the descriptor is bound to this very process.
        yield descriptor if is_alive(process) else None
    finally:
        os.close(descriptor)


def _read_stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    # The command name is in parentheses and may itself hold blanks and parentheses.
    fields = text[text.rfind(")") + 2 :].split()
    return _Stat(
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )
