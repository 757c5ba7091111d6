"""What is mounted below a folder, and its removal."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from prfaas.errors import StateError

_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def is_mounted(path: Path) -> bool:
    """Return whether something is mounted on exactly this path."""
    return str(path) in _mount_points()


def unmount_below(folder: Path) -> int:
    """Unmount all below a folder, the last mounted first; return how many.

    Raises:
        StateError: one does not come off.
    """
    inside = f"{folder}/"
    found = [point for point in _mount_points() if point.startswith(inside)]
    for point in reversed(found):
        if _libc.umount2(os.fsencode(point), _MNT_DETACH) != 0:
            code = ctypes.get_errno()
            raise StateError(f"cannot unmount {point}: {os.strerror(code)}")
    return len(found)


def _mount_points() -> list[str]:
    return list(_parsed(Path("/proc/self/mountinfo").read_text()))


def _parsed(mountinfo: str) -> Iterator[str]:
    """Yield mount points; the kernel writes odd characters as octal numbers.

    >>> list(_parsed("36 35 98:0 / /mnt/a\\\\040b rw - ext3 /dev/root rw"))
    ['/mnt/a b']
    """
    for line in mountinfo.splitlines():
        yield line.split(" ")[4].encode().decode("unicode_escape").encode("latin-1").decode()
