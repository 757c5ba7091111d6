"""`python -m prfaas_cli.host_process CGROUP -- PROGRAM [ARGUMENT...]`: run it in a control group.

Every full host has a control group of its own below the root of each hierarchy that systemd uses,
or the systemds of two hosts would take each other's services for theirs.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")


def hierarchies(mount: Path = _MOUNT) -> Iterator[Path]:
    """Yield the roots of the hierarchies in which systemd tracks services."""
    for root in (mount, mount / "systemd", mount / "unified"):
        if (root / "cgroup.procs").exists():
            yield root


def remove_cgroup(name: str) -> None:
    """Remove an empty control group with all below it; what is not there, or not empty, stays."""
    for root in hierarchies():
        folders = [path for path in (root / name).rglob("*") if path.is_dir()]
        for folder in [
            *sorted(folders, key=lambda path: len(path.parts), reverse=True),
            root / name,
        ]:
            with contextlib.suppress(OSError):
                folder.rmdir()


def main(argv: Sequence[str]) -> int:
    """Enter the control group and execute; return an exit status only when that failed."""
    if len(argv) < 3 or argv[1] != "--":
        sys.stderr.write("usage: python -m prfaas_cli.host_process CGROUP -- PROGRAM ...\n")
        return 2
    try:
        for root in hierarchies():
            (root / argv[0]).mkdir(exist_ok=True)
            (root / argv[0] / "cgroup.procs").write_text(str(os.getpid()))
        os.execvp(argv[2], list(argv[2:]))  # noqa: S606 - the purpose of this module
    except OSError as error:
        sys.stderr.write(f"cannot run {argv[2]} in control group {argv[0]}: {error}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
