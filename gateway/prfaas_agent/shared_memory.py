"""Files that SGLang leaves in /dev/shm when it is killed.

Source: sglang 0.5.23 `srt/managers/load_snapshot.py`, `srt/utils/stale_shm_cleanup.py`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prfaas_agent.process import ProcessId

_FOLDER = "/dev/shm/"  # noqa: S108 - the kernel's name, not a temporary file of ours
_PREFIXES = ("sglang_loads_", "sgl_shm")


def shared_files(processes: Iterable[ProcessId]) -> set[str]:
    """Return the paths of SGLang's shared files that these processes have mapped."""
    found = set()
    for process in processes:
        for line in _maps(process.pid):
            _, folder, name = line.partition(_FOLDER)
            if folder and name.startswith(_PREFIXES) and not name.endswith(" (deleted)"):
                found.add(folder + name)
    return found


def listed_files(entry: Mapping[str, Any] | None) -> set[str]:
    """Return the shared files that an engine's file lists; none where it is damaged."""
    listed = (entry or {}).get("shared_files")
    return {path for path in listed if isinstance(path, str)} if isinstance(listed, list) else set()


def remove_shared_files(paths: Iterable[str]) -> None:
    """Remove files that `shared_files` found, once their processes have ended."""
    for path in paths:
        if path.startswith(tuple(_FOLDER + prefix for prefix in _PREFIXES)):
            Path(path).unlink(missing_ok=True)


def _maps(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
