"""`python -m prfaas_twin --config FILE ...`: run the twins of these nodes in one process.

A node agent gives its node's configuration as a text, `--config-text`.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from prfaas.config import parse_node_config
from prfaas.errors import PrfaasError
from prfaas_twin.host import run_twins


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="prfaas_twin", description=__doc__)
    parser.add_argument("--config", type=Path, action="append", default=[], help="a node's TOML")
    parser.add_argument("--config-text", action="append", default=[], help="a node's TOML itself")
    asked = parser.parse_args(argv)
    if not asked.config and not asked.config_text:
        parser.error("--config is missing")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
    try:
        configs = [parse_node_config(file.read_text(), source=str(file)) for file in asked.config]
        configs += [parse_node_config(text, source="--config-text") for text in asked.config_text]
        asyncio.run(run_twins(configs))
    except PrfaasError as error:
        sys.stderr.write(f"prfaas_twin: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"prfaas_twin: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
