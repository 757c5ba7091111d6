"""Find the processes of a deployment, whatever became of the files that named them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prfaas_agent.process import ProcessId, all_processes, identify, session_members
from prfaas_agent.shared_memory import listed_files
from prfaas_agent.state_file import read_json
from prfaas_cli.place import MARKER, Place


def recorded_processes(place: Place) -> Iterator[ProcessId]:
    """Yield the live processes that the deployment's files name."""
    supervisor = read_supervisor(place)
    entries = [supervisor, *supervisor["processes"].values()]
    files = place.directory.glob("*.engine.json")
    entries.extend((read_json(path) or {}).get("process") for path in files)
    for entry in entries:
        process = process_of(entry)
        if process is not None and identify(process.pid) == process:
            yield process


def read_supervisor(place: Place) -> dict[str, Any]:
    """Return the supervisor's file; what is missing or damaged in it is left out."""
    found = read_json(place.supervisor_file) or {}
    known = found.get("processes")
    entries = known.items() if isinstance(known, dict) else ()
    found["processes"] = {name: entry for name, entry in entries if isinstance(entry, dict)}
    return found


def recorded_shared_files(place: Place) -> set[str]:
    """Return the files in /dev/shm that the deployment's engines are known to use."""
    return {
        path
        for file in place.directory.glob("*.engine.json")
        for path in listed_files(read_json(file))
    }


def process_of(entry: Any) -> ProcessId | None:
    """Return the process that a file's entry names; None where the entry is damaged."""
    if not isinstance(entry, dict):
        return None
    pid, start_ticks = entry.get("pid"), entry.get("start_ticks")
    if isinstance(pid, int) and isinstance(start_ticks, int):
        return ProcessId(pid, start_ticks)
    return None


def marked_processes(place: Place) -> Iterator[ProcessId]:
    """Yield the live processes that carry the deployment's marker in their environment."""
    marker = f"{MARKER}={place.directory}".encode()
    for process in all_processes():
        if marker in _environment(process.pid):
            yield process


def deployment_processes(place: Place, namespaces: Iterable[str]) -> set[ProcessId]:
    """Return all live processes of a deployment, but not this one and its ancestors.

    SGLang's children overwrite their environment with a process title, so a process also belongs
    to the deployment through its namespace or through the leader of its session.
    """
    from prfaas_netem import pids_in

    found = {*recorded_processes(place), *marked_processes(place)}
    for namespace in namespaces:
        found.update(process for pid in pids_in(namespace) if (process := identify(pid)))
    found.update(session_members(*found))
    own = set(_own_line())
    return {process for process in found if process.pid not in own}


def foreign_directory(place: Place, namespaces: Iterable[str]) -> str | None:
    """Return the directory of another deployment whose processes live in these namespaces."""
    from prfaas_netem import pids_in

    prefix = f"{MARKER}=".encode()
    for namespace in namespaces:
        for pid in pids_in(namespace):
            for item in _environment(pid):
                if item.startswith(prefix) and item[len(prefix) :] != str(place.directory).encode():
                    return item[len(prefix) :].decode(errors="replace")
    return None


def _own_line() -> Iterator[int]:
    pid = os.getpid()
    while pid > 1:
        yield pid
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(text[text.rfind(")") + 2 :].split()[1])


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
