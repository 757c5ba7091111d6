"""The entry of `prfaasctl` and the one place that exits on errors."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from prfaas_cli.failures import INTERRUPTED, fail


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; every expected failure is one line on stderr."""
    _prepare_streams()
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    as_json = "--json" in arguments
    try:
        # Here, because it takes a while: Ctrl-C may come meanwhile.
        from prfaas_cli.app import run_command

        return run_command(arguments, as_json=as_json)
    except KeyboardInterrupt:
        return fail(["interrupted"], INTERRUPTED, as_json=as_json)
    finally:
        _finish_streams()


def _prepare_streams() -> None:
    """Have both streams write something for every character, and exist even where closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _finish_streams() -> None:
    """Flush; what cannot be written, as the reader is gone or the disk full, is dropped quietly."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(run())
