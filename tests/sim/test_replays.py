"""The same seed gives the same columns, bit by bit, in this process and in any other."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from test_any_run import random_world

from prfaas.sim.record import Columns

SEEDS = range(40, 60)


def digest_of(columns: Columns) -> str:
    digest = hashlib.sha256()
    for name in sorted(columns.__slots__):
        digest.update(np.ascontiguousarray(getattr(columns, name)).tobytes())
    return digest.hexdigest()


def digest_of_seeds() -> str:
    return "\n".join(digest_of(random_world(seed).run()) for seed in SEEDS)


def test_twice_in_one_process() -> None:
    assert digest_of_seeds() == digest_of_seeds()


def test_in_processes_that_hash_differently() -> None:
    folder = Path(__file__).parent
    found = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        result = subprocess.run(
            [sys.executable, "-c", "import test_replays as t; print(t.digest_of_seeds())"],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        found.add(result.stdout.strip())
    assert found == {digest_of_seeds()}


def test_seeds_differ() -> None:
    assert len(set(digest_of_seeds().split("\n"))) == len(SEEDS)
