"""What layer-wise sending takes from SGLang's own pools and allocators."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prfaas_cpu.launch import STANDINS


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Run in a process of its own: SGLang's import must not reach other tests."""
    script = Path(__file__).with_name("sglang_pools.py")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SGLANG_")}
    done = subprocess.run(
        [sys.executable, script],
        env=clean | {"PYTHONPATH": str(STANDINS), "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_held_pages_come_back_in_every_allocator(found: dict[str, Any]) -> None:
    """Nothing is lost, and nothing is freed twice."""
    cases = found["held_frees"]
    assert {name: case["sizes"] for name, case in cases.items()} == {
        # Tokens: all, less 12 in use, 8 of them freed and kept, window given back, all given back.
        "token": [64, 52, 52, 52, 60],
        "paged": [64, 52, 52, 52, 60],
        "window": [64, 52, 52, 60, 60],
        "window_full": [64, 52, 52, 52, 60],
    }
    assert cases["token"]["pages"] == cases["window_full"]["pages"]
    assert len(cases["paged"]["pages"]) == 2


def test_every_entry_belongs_to_the_layer_that_writes_it(found: dict[str, Any]) -> None:
    parts = found["layer_parts"]
    assert parts["dense"] == {
        f"attention.{layer}": [["kv", layer], ["kv", 3 + layer]] for layer in range(3)
    }
    assert parts["latent"] == {f"attention.{layer}": [["kv", layer]] for layer in range(3)}
    assert parts["hybrid"] == {
        "attention.2": [["kv", 0, 1]],
        # The second layer's first tensor holds nothing and is no entry.
        "linear.0": [["state.0.mamba", 0, 1]],
        "linear.1": [["state.0.mamba", 2]],
    }
    assert parts["window"] == {
        "attention.0": [["state.0.swa", 0], ["state.0.swa", 2]],
        "attention.1": [["kv", 0, 1]],
        "attention.2": [["state.0.swa", 1], ["state.0.swa", 3]],
    }


def test_pools_that_are_not_known_are_refused(found: dict[str, Any]) -> None:
    assert found["layer_parts"]["odd length"] == "kv: 5 entries, 6 layer ids"
    assert found["layer_parts"]["other pool"] == "KV pool DSATokenToKVPool"


def test_an_exception_in_a_hook_reaches_neither_the_scheduler_nor_the_cache(
    found: dict[str, Any],
) -> None:
    calls = found["hooks"]
    for results in calls.values():
        assert results[:2] == ["batch, attention", "cached"]
    assert calls[""][2] == ["start", "forward", "layer_written", "end", "hold", "keep"]
    assert calls["start"][2] == ["start", "broke", "hold", "keep"]
    assert calls["forward"][2] == ["start", "forward", "broke", "hold", "keep"]
    assert calls["layer_written"][2][:4] == ["start", "forward", "layer_written", "broke"]
    assert calls["end"][2][2:5] == ["layer_written", "end", "broke"]
    # Pages may have been freed under way: that room is given up.
    assert calls["hold"][2][-2:] == ["hold", "abandon"]
    assert calls["keep"][2][-2:] == ["keep", "abandon"]


def test_a_layer_is_known_however_its_backend_is_called(found: dict[str, Any]) -> None:
    assert found["layer_keys"] == {
        "by position": ["attention", 3],
        "by name": ["linear", 4],
        "mixer": ["linear", 5],
        "nothing": None,
    }
