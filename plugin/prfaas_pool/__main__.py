"""Run a pool service: `python -m prfaas_pool --arena FILE --socket FILE --bytes N`.

With `--socket FILE --stats` print the figures of one that runs.
"""

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path

from prfaas.errors import PrfaasError
from prfaas_pool.client import PoolClient
from prfaas_pool.config import (
    DEFAULT_BLOCK_BYTES,
    MAX_BLOCK_BYTES,
    MAX_BYTES,
    MIN_BLOCK_BYTES,
    PoolConfig,
)
from prfaas_pool.server import serve


def main() -> int:
    """Parse the command line and serve until a signal."""
    parser = argparse.ArgumentParser(prog="prfaas_pool", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="where clients connect")
    parser.add_argument("--arena", type=Path, help="file of the arena")
    parser.add_argument("--bytes", type=int, default=0, help="size of all blocks together")
    parser.add_argument("--block-bytes", type=int, default=DEFAULT_BLOCK_BYTES)
    parser.add_argument("--stats", action="store_true", help="print a running service's figures")
    options = parser.parse_args()
    if options.stats:
        return _print_stats(options.socket)
    if options.arena is None:
        parser.error("--arena: missing")
    if not MIN_BLOCK_BYTES <= options.block_bytes <= MAX_BLOCK_BYTES:
        parser.error(f"--block-bytes: allowed is {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}")
    if options.block_bytes % MIN_BLOCK_BYTES:
        parser.error(f"--block-bytes: must be a multiple of {MIN_BLOCK_BYTES}")
    if not options.block_bytes <= options.bytes <= MAX_BYTES:
        parser.error(f"--bytes: allowed is {options.block_bytes} to {MAX_BYTES}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    config = PoolConfig(options.arena, options.socket, options.bytes, options.block_bytes)
    try:
        asyncio.run(serve(config))
    except PrfaasError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def _print_stats(socket: Path) -> int:
    client = PoolClient(socket)
    stats = client.stats()
    client.close()
    if stats is None:
        return 1  # the client has said why
    sys.stdout.write(json.dumps(stats, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
