"""The entry of `prfaasctl` and the one place that exits on errors."""

import sys
from collections.abc import Sequence

from prfaas_cli.failures import INTERRUPTED, fail


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; every expected failure is one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    as_json = "--json" in arguments
    try:
        # Here, because it takes a while: Ctrl-C may come meanwhile.
        from prfaas_cli.app import run_command

        return run_command(arguments, as_json=as_json)
    except KeyboardInterrupt:
        return fail(["interrupted"], INTERRUPTED, as_json=as_json)


if __name__ == "__main__":
    sys.exit(run())
