"""Failures that hold more than one line.

PrfaasError
└── ProblemsError    several things are wrong at once; each is shown on its own line
"""

from collections.abc import Sequence

from prfaas.errors import PrfaasError


class ProblemsError(PrfaasError):
    """Everything that stands in the way, found in one go."""

    def __init__(self, problems: Sequence[str], *, exit_code: int) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
        self.exit_code = exit_code
