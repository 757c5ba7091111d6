"""`python -m prfaas_cli`: the same as `prfaasctl`."""

import sys

from prfaas_cli.main import run

if __name__ == "__main__":
    sys.exit(run())
