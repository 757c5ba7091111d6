"""Trace files: read whole, plain or gzip, up to a limit."""

import gzip
import zlib
from io import BufferedReader
from pathlib import Path

from prfaas.errors import ConfigError
from prfaas.workload import Trace, parse_trace

MAX_BYTES = 512 << 20
"""Of the text, after unpacking: a small archive may unpack to anything."""

_GZIP_MAGIC = b"\x1f\x8b"


def read_trace(file: Path, *, max_bytes: int = MAX_BYTES) -> Trace:
    """Read a trace of any known format; a gzip file is known by its first bytes.

    Raises:
        ConfigError: it cannot be read, is longer than max_bytes, or is not a trace.
    """
    return parse_trace(_text(_content(file, max_bytes), file), str(file))


def _content(file: Path, max_bytes: int) -> bytes:
    try:
        with file.open("rb") as plain:
            content = _read(plain, max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"{file}: a damaged gzip file: {error}") from None
    if len(content) > max_bytes:
        raise ConfigError(f"{file}: more than {max_bytes >> 20} MiB, the limit for a trace")
    return content


def _read(plain: BufferedReader, size: int) -> bytes:
    if not plain.peek(2).startswith(_GZIP_MAGIC):
        return plain.read(size)
    with gzip.GzipFile(fileobj=plain) as unpacked:
        return unpacked.read(size)


def _text(content: bytes, file: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8 text") from None
