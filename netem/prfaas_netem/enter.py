"""`python -m prfaas_netem.enter NAMESPACE -- PROGRAM [ARGUMENT...]`: run it in a namespace.

For callers that start processes from an argument list only. No shell, the process id stays.
"""

import os
import sys
from collections.abc import Sequence

from prfaas.errors import PrfaasError
from prfaas_netem.namespace import enter


def argv_in(namespace: str, argv: Sequence[str]) -> list[str]:
    """Return the argument list that runs `argv` in a namespace."""
    return [sys.executable, "-m", "prfaas_netem.enter", namespace, "--", *argv]


def main(argv: Sequence[str]) -> int:
    """Enter and execute; return an exit status only when that failed."""
    if len(argv) < 3 or argv[1] != "--":
        sys.stderr.write("usage: python -m prfaas_netem.enter NAMESPACE -- PROGRAM [ARGUMENT...]\n")
        return 2
    try:
        enter(argv[0])
        os.execvp(argv[2], list(argv[2:]))  # noqa: S606 - the purpose of this module
    except PrfaasError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"cannot run {argv[2]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
