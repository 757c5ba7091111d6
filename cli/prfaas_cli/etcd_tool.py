"""etcd's own command on this machine. Keys and certificates are named in its environment only."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prfaas.errors import PreflightError, StateError

_TIMEOUT_S = 300.0


def etcd_tool(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run etcdctl, or etcdutl where a newer etcd has moved the command there; return its output.

    Raises:
        PreflightError: it is not installed.
        StateError: it failed, with its last line, or takes too long.
    """
    done = _run("etcdctl", words, environment)
    if done.returncode and "unknown command" in done.stderr:
        done = _run("etcdutl", words, environment)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise StateError(f"etcdctl {' '.join(words[:2])}: {said[-1][-500:]}")
    return done.stdout


def _run(
    name: str, words: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    from prfaas_cli.preflight import find_program

    program = find_program(name)
    if program is None:
        raise PreflightError(f"{name} is not installed; install the package etcd-client")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ETCDCTL_")}
    try:
        return subprocess.run(
            [program, *words],
            env=kept | {"ETCDCTL_API": "3"} | dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        said = f"{name} {' '.join(words[:2])}: not done within {_TIMEOUT_S:g} s"
        raise StateError(said) from None


def snapshot_status(path: Path) -> dict[str, Any]:
    """Return what etcd's tool finds in a snapshot. Raises: StateError: it is none, or damaged."""
    found = json.loads(etcd_tool(["snapshot", "status", str(path), "-w", "json"], {}))
    return dict(found)
