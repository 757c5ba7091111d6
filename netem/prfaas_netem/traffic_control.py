"""The `tc` program, which speaks all of netem's language."""

import os
import subprocess

from prfaas.errors import PreflightError

_SYSTEM_PATHS = "/usr/sbin:/sbin"


def run_tc(*arguments: str) -> None:
    """Run `tc` in the calling thread's namespace.

    Raises: PreflightError when it is not installed, or it or the kernel refuses.
    """
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATHS}"
    try:
        done = subprocess.run(
            ["tc", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "PATH": path},
        )
    except FileNotFoundError as error:
        raise PreflightError("tc is not installed; install the package iproute2") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PreflightError(f"tc {' '.join(arguments)}: {lines[0]}")
