"""`profile estimate` on answers that the real aiconfigurator-core 0.12.0 gave.

The package and what it needs are 500 MB, so it is not installed for tests: modules that give the
recorded answers (tests/data/aiconfigurator) stand in for it, and know nothing else.
"""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from prfaas.profile import Origin
from prfaas.profile.catalog import TABLE_3, find_profile
from prfaas.profile.document import parse_document
from prfaas_cli.main import run

DATA = Path(__file__).parents[2] / "data"
ANSWERS = json.loads((DATA / "aiconfigurator/answers.json").read_text())
CONFIGS = {
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b.json",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo-v2-flash.json",
}
QWEN = ("--model", "Qwen/Qwen3.5-397B-A17B", "--system", "h200_sxm", "--tp", "8")


class Recorded:
    """One engine of the stand-in."""

    def __init__(self, model: str) -> None:
        self._answers = ANSWERS["models"][model]

    def predict_prefill_latency(self, batch: int, tokens: int) -> float:
        assert batch == 1
        return float(self._answers["prefill_ms"][str(tokens)])

    def predict_decode_latency(self, batch: int, context_tokens: int) -> float:
        assert context_tokens == ANSWERS["context_tokens"]
        return float(self._answers["decode_ms"][str(batch)])


def compile_engine(model: str, system: str, backend: str, version: str, **split: int) -> str:
    assert (system, backend, version) == (ANSWERS["system"], "sglang", ANSWERS["sglang"])
    if split["tp_size"] == 3:
        raise AssertionError("num_heads 32 should be divisible by tp_size 3 ")
    assert split == ANSWERS["models"][model]["split"]
    return model


def estimate_kv_cache(model: str, *_: str, **limits: Any) -> dict[str, int]:
    assert limits["memory_fraction_kind"] == "of_total"
    return {"total_kv_size_bytes": ANSWERS["models"][model]["total_kv_size_bytes"]}


def resolve_query_version(system: str, backend: str, slot: str) -> str:
    assert (backend, slot) == ("sglang", "current")
    return str(ANSWERS["sglang"])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Put the stand-in where the package would be; attributes are what tests may change."""
    (tmp_path / "model_configs").mkdir()
    for model, file in CONFIGS.items():
        text = (DATA / "model-configs" / file).read_text()
        (tmp_path / f"model_configs/{model.replace('/', '--')}_config.json").write_text(text)
    for system in ("h200_sxm", "l40s"):
        (tmp_path / "systems/data" / system).mkdir(parents=True)
        (tmp_path / f"systems/{system}.yaml").touch()
    root, sdk, common, database = map(ModuleType, ("root", "sdk", "common", "database"))
    root.__file__ = str(tmp_path / "__init__.py")
    vars(sdk).update(
        compile_engine=compile_engine, EngineHandle=Recorded, estimate_kv_cache=estimate_kv_cache
    )
    vars(common).update(DefaultHFModels=set(CONFIGS))
    vars(database).update(resolve_query_version=resolve_query_version)
    modules = {"": root, ".sdk": sdk, ".sdk.common": common, ".sdk.perf_database": database}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"aiconfigurator_core{name}", module)
    return SimpleNamespace(sdk=sdk)


def estimate(*arguments: str) -> int:
    return run(["profile", "estimate", *arguments])


def test_an_estimate_is_a_profile_marked_as_one(
    installed: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "q.json"
    assert estimate(*QWEN, "--output", str(file)) == 0
    text = capsys.readouterr().out
    assert "origin: estimated; aiconfigurator-core, kernel times of SGLang 0.5.14" in text
    assert "an estimate, and optimistic" in text
    document = parse_document(file.read_bytes(), "q")
    profile = document.profile
    assert profile.origin is Origin.ESTIMATED
    assert [round(profile.prefill_s.at(k * 1024), 3) for k in (1, 8, 32, 128)] == [
        0.050,
        0.182,
        0.634,
        2.888,
    ]
    assert profile.kv_bytes.at(32 * 1024) == pytest.approx(1143.2 * 2**20, rel=1e-4)
    assert profile.decode is not None
    assert profile.decode.max_batch == 156, "what memory holds at 8K tokens"
    assert profile.decode.step_s.at(64) == pytest.approx(0.0238, abs=1e-4)
    assert dict(document.provenance.versions)["sglang"] == "0.5.14"
    assert run(["profile", "show", str(file)]) == 0
    assert "an estimate, and optimistic" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "name", "percent"),
    [
        ("Qwen/Qwen3.5-397B-A17B", "paper-qwen3.5-397b-h200", (12, 32, 55, 64)),
        ("XiaomiMiMo/MiMo-V2-Flash", "paper-mimo-v2-flash-h200", (6, 20, 38, 67)),
    ],
)
def test_how_optimistic_estimates_are_is_as_said(
    installed: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    model: str,
    name: str,
    percent: tuple[int, ...],
) -> None:
    assert name in TABLE_3
    paper = find_profile(name)
    assert estimate("--model", model, "--system", "h200_sxm", "--tp", "8") == 0
    text = capsys.readouterr().out
    assert f"{' / '.join(map(str, percent))} % ({paper.model.removesuffix('-A17B')})" in text
    assert estimate("--model", model, "--system", "h200_sxm", "--tp", "8", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["caveat"].startswith("an estimate, and optimistic")
    rows = shown["lengths"]
    assert percent == tuple(
        round(100 * row["prefill_s"] / paper.prefill_s.at(row["tokens"])) for row in rows
    )


def test_a_directory_is_a_model_as_well(
    installed: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DATA / "model-configs/qwen3.5-397b-a17b.json").read_text()
    (tmp_path / "config.json").write_text(text)
    installed.sdk.compile_engine = lambda *_, **__: QWEN[1]
    installed.sdk.estimate_kv_cache = lambda *_, **__: estimate_kv_cache(
        QWEN[1], memory_fraction_kind="of_total"
    )
    assert estimate("--model", str(tmp_path), *QWEN[2:], "--json") == 0
    assert json.loads(capsys.readouterr().out)["file"] is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (("--model", "qwen3.5-397b"), "near: Qwen/Qwen3.5-397B-A17B"),
        (("--system", "h20"), "--system 'h20': allowed: h200_sxm, l40s"),
        (("--tp", "3"), "no estimate of this instance, other options may do: num_heads 32 should"),
        (("--tp", "0"), "--tp 0: allowed is 1"),
        (("--ep", "3"), "--ep 3: must divide --tp 8"),
        (("--context", "far"), "--context 'far'"),
        (("--context", "100m"), "--context '100m'"),
        (("--output", "/nowhere/x"), "--output /nowhere/x: /nowhere is not a directory"),
    ],
)
def test_it_refuses_in_one_line(
    installed: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    changes: tuple[str, ...],
    expected: str,
) -> None:
    assert estimate(*QWEN, *changes) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1


def test_a_model_that_memory_does_not_hold(
    installed: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.sdk.estimate_kv_cache = lambda *_, **__: {"total_kv_size_bytes": 1000}
    assert estimate(*QWEN) == 2
    assert "does not hold Qwen/Qwen3.5-397B-A17B with one request" in capsys.readouterr().err


def test_a_senseless_answer_is_refused(
    installed: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Recorded, "predict_prefill_latency", lambda *_: float("nan"))
    assert estimate(*QWEN) == 2
    assert "says nan s for a prefill of 128 tokens" in capsys.readouterr().err


def test_without_the_package_it_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "aiconfigurator_core" not in sys.modules
    assert estimate(*QWEN) == 3
    err = capsys.readouterr().err
    assert "pip install 'prfaas[estimate]'" in err
    assert err.count("\n") == 1
