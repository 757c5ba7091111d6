"""What the machine must have before regions can be made."""

import os
import shutil
from pathlib import Path

from prfaas.errors import PreflightError

TOOLS = ("iptables",)


def missing_tools() -> tuple[str, ...]:
    """Return the names of programs that are needed and not on the path."""
    return tuple(tool for tool in TOOLS if shutil.which(tool) is None)


def problems() -> tuple[str, ...]:
    """Return everything that stands in the way, one line each; empty when all is well."""
    found = []
    if os.geteuid() != 0:
        found.append("network namespaces need root; run as root")
    found += [f"{tool} is not installed; install the package {tool}" for tool in missing_tools()]
    if not Path("/proc/thread-self/ns/net").exists():
        found.append("the kernel has no network namespaces")
    return tuple(found)


def require() -> None:
    """Raise PreflightError, one line with all problems, unless regions can be made."""
    found = problems()
    if found:
        raise PreflightError("; ".join(found))
