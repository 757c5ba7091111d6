"""What a command says: its result on stdout, notes and progress on stderr."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_ESCAPED = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"
} | {ord("\r"): "\\r"}


class Output:
    """One command's voice. With `as_json` the result is one JSON document and nothing else."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began_s

    def note(self, text: str) -> None:
        """Say something on the way, on stderr; that nobody reads it any more changes nothing."""
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{harmless(text)}\n")
            sys.stderr.flush()

    def step(self, text: str) -> None:
        """Say that something is done or under way, with the seconds since the begin."""
        self.note(f"{self.elapsed_s:7.1f} s  {text}")

    def result(self, document: Any, lines: Callable[[], Iterable[str]]) -> None:
        """Give the result: the JSON document, or `lines` for a person."""
        if self._as_json:
            sys.stdout.write(json.dumps(finite(document), allow_nan=False) + "\n")
        else:
            sys.stdout.writelines(f"{harmless(line)}\n" for line in lines())
        sys.stdout.flush()


def harmless(text: str) -> str:
    """Return the text with control characters escaped, tabs and line ends kept: what servers and
    other operators wrote must not steer the terminal of who reads it.

    >>> harmless("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    return text.translate(_ESCAPED)


def finite(value: Any) -> Any:
    """Return the value with null for every number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows into columns; the first row is the heading.

    >>> table([["a", "bb"], ["ccc", "d"]])
    ['a    bb', 'ccc  d']
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def shown_duration(seconds: float) -> str:
    """Return a duration for people: the two largest units.

    >>> shown_duration(3.21), shown_duration(125), shown_duration(7260)
    ('3.2 s', '2 min 5 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    return f"{minutes // 60} h {minutes % 60} min"


def shown_bytes(count: float) -> str:
    """Return a number of bytes for people.

    >>> shown_bytes(512), shown_bytes(1_500_000)
    ('512 B', '1.4 MiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"
