"""Frees that wait, with SGLang's own allocators: nothing is lost and nothing is freed twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

from prfaas_cpu.launch import STANDINS


def test_held_pages_come_back_in_every_allocator() -> None:
    """In a process of its own: SGLang's import must not reach other tests."""
    script = Path(__file__).with_name("hold_frees.py")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SGLANG_")}
    done = subprocess.run(
        [sys.executable, script],
        env=clean | {"PYTHONPATH": str(STANDINS), "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: case["sizes"] for name, case in found.items()} == {
        # Tokens: all, less 12 in use, 8 of them freed and kept, window given back, all given back.
        "token": [64, 52, 52, 52, 60],
        "paged": [64, 52, 52, 52, 60],
        "window": [64, 52, 52, 60, 60],
        "window_full": [64, 52, 52, 52, 60],
    }
    assert found["token"]["pages"] == found["window_full"]["pages"]
    assert len(found["paged"]["pages"]) == 2
