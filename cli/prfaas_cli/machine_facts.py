"""What this machine is, for the record of a measurement."""

import platform
import subprocess
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prfaas.profile.samples import Machine

_QUERY = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
_QUERY_TIMEOUT_S = 20.0


def this_machine() -> Machine:
    """Return CPU, GPUs and memory of this machine, as far as they can be found out."""
    return Machine(cpu=_cpu(), gpu=_gpus(), memory_bytes=_memory_bytes())


def package_version(name: str) -> str:
    """Return the version of an installed package; empty when it is not."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _cpu() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in _text(Path("/proc/cpuinfo")).splitlines()
        if line.startswith("model name")
    ]
    return _counted(names) or platform.machine()


def _gpus() -> str:
    try:
        done = subprocess.run(
            _QUERY, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return _counted([line.strip() for line in done.stdout.splitlines() if line.strip()])


def _memory_bytes() -> int:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _counted(names: list[str]) -> str:
    """Return names with how often each comes.

    >>> _counted(["H200", "H200"])
    '2x H200'
    """
    return ", ".join(f"{count}x {name}" for name, count in Counter(names).items())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
