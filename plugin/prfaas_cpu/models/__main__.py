"""Command line: `python -m prfaas_cpu.models make [--out DIR] [--only NAME]`."""

import argparse
import sys
from pathlib import Path

from prfaas_cpu.models import TINY_MODELS, default_models_dir
from prfaas_cpu.models.store import make_models


def main(arguments: list[str]) -> int:
    """Make the models and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m prfaas_cpu.models")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="make the tiny models that are missing or damaged")
    make.add_argument("--out", type=Path, default=default_models_dir(), metavar="DIR")
    make.add_argument("--only", choices=TINY_MODELS, action="append", metavar="NAME")
    chosen = parser.parse_args(arguments)
    for name, made in make_models(chosen.out, chosen.only or TINY_MODELS):
        sys.stdout.write(f"{chosen.out / name}: {'made' if made else 'complete'}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
