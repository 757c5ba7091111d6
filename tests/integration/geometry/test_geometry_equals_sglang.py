"""Geometry from a config file equals what SGLang makes of it: its classes, its engines' pools."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sglang_engines import Engine, ForkServerProcess

from prfaas.profile.geometry import Dtypes, geometry_of
from prfaas_cpu.launch import STANDINS
from prfaas_cpu.models import TINY_MODELS, default_models_dir

CONFIGS = Path(__file__).parents[2] / "data" / "model-configs"
TP_SIZES = (1, 2, 8)
#: What the CPU kit runs engines with.
CPU_DTYPES = Dtypes(kv="float32", ssm="float32", conv="float32")


@pytest.fixture(scope="module")
def sglang_state_bytes() -> dict[str, dict[str, int]]:
    script = Path(__file__).with_name("sglang_state_bytes.py")
    sizes = ",".join(map(str, TP_SIZES))
    # SGLang's own defaults: what other tests set for engines on CPU must not reach it.
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SGLANG_")}
    done = subprocess.run(
        [sys.executable, script, sizes, *sorted(CONFIGS.glob("*.json"))],
        env=clean | {"PYTHONPATH": str(STANDINS), "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def test_states_equal_those_of_sglangs_classes_at_every_tp(
    sglang_state_bytes: dict[str, dict[str, int]],
) -> None:
    """Six models, five kinds of state."""
    ours = {
        name: {str(tp): tp * geometry.on_rank(tp).state_bytes() for tp in TP_SIZES}
        for name in sglang_state_bytes
        for geometry in [geometry_of(json.loads((CONFIGS / f"{name}.json").read_text()))]
    }
    assert len(ours) == 6
    assert ours == sglang_state_bytes


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, int]]]:
    """Bytes per item of every group that a real prefill engine of each model registered."""
    server = ForkServerProcess(tmp_path_factory.mktemp("geometry"))
    try:
        engines = {
            name: server.start_prefill(default_models_dir() / name, name=name, transfer={})
            for name in TINY_MODELS
        }
        with server.running(*engines.values()):
            yield {name: _registered(engine) for name, engine in engines.items()}
    finally:
        server.close()


def _registered(engine: Engine) -> dict[str, int]:
    """Return what the plugin says it registered: the layout it made of SGLang's KVArgs."""
    found = re.findall(r"(\S+)=(\d+) B/item", engine.log.read_text())
    assert found, engine.log.read_text()[-2000:]
    return {name: int(count) for name, count in found}


@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TINY_MODELS)
def test_geometry_equals_what_the_plugin_registers(
    registered: dict[str, dict[str, int]], name: str
) -> None:
    """At page size 1 an item of `kv` and of a window is a token, one of a state is a request."""
    config = json.loads((default_models_dir() / name / "config.json").read_text())
    geometry = geometry_of(config, dtypes=CPU_DTYPES)
    expected = {"kv": geometry.bytes_per_token()}
    if geometry.state_bytes():
        expected["state.0.mamba"] = geometry.state_bytes()
    if geometry.window_bytes(1):
        expected["state.0.swa"] = geometry.window_bytes(1)
    groups = dict(registered[name])
    assert groups.pop("aux") > 0  # the first token's metadata: no part of the cache
    assert groups == expected
