"""`profile run` against a real SGLang server."""

from pathlib import Path

import pytest
from sglang_engines import ForkServerProcess

from prfaas.profile.document import parse_document
from prfaas_cli.main import run
from prfaas_cli.profile_kv import read_geometry

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(300)
def test_a_real_server_is_measured(
    fork_server: ForkServerProcess,
    models_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, file = models_dir / "qwen3-tiny", tmp_path / "p.json"
    engine = fork_server.start(model, name="measured")
    with fork_server.running(engine):
        arguments = ["profile", "run", "--url", engine.url, "--output", str(file)]
        arguments += ["--lengths", "64,512,3k", "--batches", "1,4", "--output-tokens", "16"]
        assert run(arguments) == 0
    document = parse_document(file.read_bytes(), "p.json")
    profile, how = document.profile, document.provenance
    assert profile.prefill_s.at(3072) > profile.prefill_s.at(64) > 0
    assert profile.decode is not None
    assert profile.decode.max_batch == 4
    assert 0 < profile.decode.step_s.at(1) <= profile.decode.step_s.at(4) < 5
    geometry = read_geometry(model, {"kv": "float32", "ssm": None, "conv": None})
    assert profile.kv_bytes.at(3072) == geometry.kv_bytes(3072)
    assert dict(how.versions)["sglang"] == "0.5.23"
    assert how.machine.cpu in profile.hardware
    assert how.complete
    capsys.readouterr()
    assert run(["profile", "show", str(file)]) == 0
    assert "origin: measured; measured by prfaasctl on SGLang 0.5.23" in capsys.readouterr().out
