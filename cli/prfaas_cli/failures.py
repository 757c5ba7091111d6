"""How a command fails, and failures that hold more than one line.

PrfaasError
└── ProblemsError    several things are wrong at once; each is shown on its own line
"""

import json
import sys
from collections.abc import Sequence

from prfaas.errors import PrfaasError

INTERRUPTED = 130


class ProblemsError(PrfaasError):
    """Everything that stands in the way, found in one go."""

    def __init__(self, problems: Sequence[str], *, exit_code: int) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
        self.exit_code = exit_code


def fail(problems: Sequence[str], exit_code: int, *, as_json: bool) -> int:
    """Say what is wrong, with `as_json` also as a document on stdout; return the exit code."""
    for problem in problems:
        sys.stderr.write(f"prfaasctl: error: {problem}\n")
    if as_json:
        document = {"error": "; ".join(problems), "problems": list(problems)}
        sys.stdout.write(json.dumps(document) + "\n")
    return exit_code
