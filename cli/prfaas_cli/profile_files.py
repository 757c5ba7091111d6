"""Profiles by name or file, and files written whole or not at all."""

import contextlib
import os
from pathlib import Path

from prfaas.errors import ConfigError
from prfaas.profile.catalog import catalog_names, find_profile
from prfaas.profile.document import ProfileDocument, parse_document

_LARGEST_BYTES = 64 << 20


def load_profile(name_or_file: str) -> ProfileDocument:
    """Return a profile of the catalog, or what a profile file holds.

    Raises:
        ConfigError: it is neither, or the file cannot be read or is damaged.
    """
    if name_or_file in catalog_names():
        return ProfileDocument(find_profile(name_or_file))
    path = Path(name_or_file)
    if "/" not in name_or_file and path.suffix != ".json" and not exists(path):
        names = ", ".join(catalog_names())
        raise ConfigError(f"profile {name_or_file!r}: neither a file nor of the catalog: {names}")
    return parse_document(read_bytes(path), name_or_file)


def read_bytes(path: Path, *, most_bytes: int = _LARGEST_BYTES) -> bytes:
    """Return what a file of reasonable size holds.

    Raises:
        ConfigError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {_why(error)}") from None
    if len(content) > most_bytes:
        raise ConfigError(f"{path}: larger than {most_bytes >> 20} MiB, too large for what it is")
    return content


def exists(path: Path) -> bool:
    """Return whether there is such a file; of a name that no file can have, False."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_writable(path: Path) -> None:
    """Find out before a long measurement whether its file can be written.

    Raises:
        ConfigError: it cannot.
    """
    if path.is_dir():
        raise ConfigError(f"--output {path}: is a directory; name a file")
    if not path.parent.is_dir():
        raise ConfigError(f"--output {path}: {path.parent} is not a directory")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--output {path}: no right to write in {path.parent}")


def write_text(path: Path, text: str) -> None:
    """Write a file so that a crash leaves the old content or the new, never a half.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise ConfigError(f"--output {path}: cannot be written: {_why(error)}") from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new, never a half.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
