"""docs/profiles.md: its example is a profile file that `show` and `plan` take."""

import json
import re
from pathlib import Path

import pytest

from prfaas.planning.paper import PAPER_CASE
from prfaas.profile.catalog import catalog_names, find_profile
from prfaas.profile.document import parse_document
from prfaas.profile.geometry import geometry_of
from prfaas_cli.app import run_command

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```json\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").write_text(EXAMPLE)
    return tmp_path / "mine.json"


def test_the_example_is_shown(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["profile", "show", "./mine.json"], as_json=False) == 0
    assert "mine: Llama-3.1-8B on 1x L40S (1 GPU)" in capsys.readouterr().out


def test_the_example_goes_into_a_case(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = PAPER_CASE.replace('"paper-1t-h20"', '"mine.json"').replace(
        '"8x H20" = 1.0', '"1x L40S" = 0.9'
    )
    mine.with_name("case.toml").write_text(case)
    assert run_command(["plan", "--case", "case.toml", "--json"], as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rent"][1]["hardware"] == "1x L40S"
    assert found["lambda_max"] > 0


def test_the_examples_sizes_are_those_of_its_model() -> None:
    config = ROOT / "tests" / "data" / "model-configs" / "llama-3.1-8b.json"
    geometry = geometry_of(json.loads(config.read_text()))
    for tokens, size in json.loads(EXAMPLE)["kv_bytes"]["points"]:
        assert geometry.kv_bytes(tokens) == size


@pytest.mark.parametrize("name", catalog_names())
def test_a_profile_of_the_catalog_becomes_a_file(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["profile", "show", name, "--file"], as_json=False) == 0
    assert parse_document(capsys.readouterr().out, "x.json").profile == find_profile(name)


def test_what_show_prints_as_json_is_told_from_a_profile_file(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["profile", "show", "paper-1t-h20", "--json"], as_json=True) == 0
    mine.write_text(capsys.readouterr().out)
    assert run_command(["profile", "show", "mine.json"], as_json=False) == 2
    assert "`profile show --file` prints a profile file" in capsys.readouterr().err
