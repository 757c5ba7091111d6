"""Network namespaces: enter, list, start processes in, find processes of.

A namespace belongs to a thread. `inside` moves the calling thread and moves it back; no other
thread notices. Sockets and child processes keep the namespace in which they were made.
"""

import contextlib
import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prfaas.errors import PreflightError, StateError

NAMESPACE_FOLDER = Path("/run/netns")

_CLONE_NEWNET = 0x40000000
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """A process found in a namespace."""

    pid: int
    name: str


def path_of(namespace: str) -> Path:
    """Return the file under which a named namespace is mounted."""
    return NAMESPACE_FOLDER / namespace


def enter(namespace: str) -> None:
    """Move the calling thread into a namespace for good.

    Raises: StateError when there is no such namespace, PreflightError when not allowed.
    """
    try:
        descriptor = os.open(path_of(namespace), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise StateError(f"network namespace {namespace} does not exist") from error
    try:
        _set_namespace(descriptor, namespace)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Run a block with the calling thread in a namespace. Do not `await` inside the block.

    Raises: as `enter`.
    """
    with _coming_back():
        enter(namespace)
        yield


@contextlib.contextmanager
def throwaway() -> Iterator[None]:
    """Run a block with the calling thread in a new namespace without a name.

    The namespace goes away with the last socket and process made in it.

    Raises: PreflightError when not allowed.
    """
    with _coming_back():
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise _refused("make a network namespace", ctypes.get_errno())
        yield


def run_in(namespace: str, argv: Sequence[str], **popen: Any) -> "subprocess.Popen[Any]":
    """Start a program in a namespace, without a shell; `pid` is the program's own.

    Keyword arguments are those of `subprocess.Popen`.

    Raises: as `enter`, and what `subprocess.Popen` raises.
    """
    with inside(namespace):
        return subprocess.Popen(list(argv), **popen)


def is_usable(namespace: str) -> bool:
    """Return whether the name exists and a namespace is mounted on it."""
    try:
        with inside(namespace):
            return True
    except StateError:
        return False


def names() -> tuple[str, ...]:
    """Return the names of all named namespaces, usable or not, sorted."""
    try:
        return tuple(sorted(entry.name for entry in NAMESPACE_FOLDER.iterdir()))
    except FileNotFoundError:
        return ()


def processes_in(namespace: str) -> tuple[Process, ...]:
    """Return the live processes of a namespace; empty when there is no such namespace."""
    try:
        wanted = path_of(namespace).stat()
    except FileNotFoundError:
        return ()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # A process may end while we look; what cannot be read is gone or a zombie.
            with contextlib.suppress(OSError):
                its = (entry / "ns/net").stat()
                if (its.st_dev, its.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(Process(int(entry.name), (entry / "comm").read_text().strip()))
    return tuple(sorted(found))


def pids_in(namespace: str) -> tuple[int, ...]:
    """Return the ids of the live processes of a namespace, sorted."""
    return tuple(process.pid for process in processes_in(namespace))


@contextlib.contextmanager
def _coming_back() -> Iterator[None]:
    home = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _set_namespace(home, "this process started in")
        finally:
            os.close(home)


def _set_namespace(descriptor: int, name: str) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) == 0:
        return
    code = ctypes.get_errno()
    if code == errno.EINVAL:
        raise StateError(f"{path_of(name)} is not a network namespace; remove that file")
    raise _refused(f"enter network namespace {name}", code)


def _refused(what: str, code: int) -> PreflightError:
    hint = "; run as root" if code == errno.EPERM else ""
    return PreflightError(f"cannot {what}: {os.strerror(code)}{hint}")
