"""How a command fails, and failures that hold more than one line.

PrfaasError
└── ProblemsError    several things are wrong at once; each is shown on its own line
"""

import contextlib
import json
import sys
from collections.abc import Sequence

from prfaas.errors import PrfaasError

INTERRUPTED = 130
_LONGEST_LINE = 1500


class ProblemsError(PrfaasError):
    """Everything that stands in the way, found in one go."""

    def __init__(self, problems: Sequence[str], *, exit_code: int) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
        self.exit_code = exit_code


def fail(problems: Sequence[str], exit_code: int, *, as_json: bool) -> int:
    """Say what is wrong, with `as_json` also as a document on stdout; return the exit code.

    That nobody reads it changes nothing.
    """
    shown = [one_line(problem) for problem in problems]
    with contextlib.suppress(OSError):
        for problem in shown:
            sys.stderr.write(f"prfaasctl: error: {problem}\n")
        sys.stderr.flush()
    if as_json:
        document = {"error": "; ".join(shown), "problems": shown}
        with contextlib.suppress(OSError):
            sys.stdout.write(json.dumps(document) + "\n")
            sys.stdout.flush()
    return exit_code


def one_line(text: str) -> str:
    """Return the text with what is not printable escaped, and cut where it is very long.

    >>> one_line("a\\nb.toml: no such file")
    'a\\\\nb.toml: no such file'
    """
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if len(escaped) <= _LONGEST_LINE:
        return escaped
    return f"{escaped[: _LONGEST_LINE // 2]} ... {escaped[-_LONGEST_LINE // 2 :]}"
