"""Certificates and keys on disk: whole files or none, keys readable by their owner only."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prfaas.errors import StateError

KEY_MODE = 0o600
CERTIFICATE_MODE = 0o644


def write_whole(path: Path, data: bytes, *, mode: int) -> None:
    """Replace a file in one step: readers see the old one or the new one.

    Raises: StateError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StateError(f"cannot write {path}: {error.strerror}") from None


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises: StateError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from None


def open_to_others(path: Path) -> bool:
    """Say whether anyone but the owner may read or write the file."""
    return bool(path.stat().st_mode & 0o077)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other commands from changing the directory meanwhile; makes it.

    Raises: StateError: it cannot be made, or another command is at it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StateError(f"directory {directory}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StateError(f"another prfaasctl is changing {directory}; wait until it ends") from None
    finally:
        os.close(descriptor)
