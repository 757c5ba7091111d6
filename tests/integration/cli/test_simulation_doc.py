"""Every output of docs/simulation.md is its command's, and its prose says what the tables say."""

import re
import shlex
from pathlib import Path

import pytest

from prfaas_cli.app import run_command
from prfaas_cli.simulate import simulate

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "simulation.md").read_text()
TABLES = (ROOT / "docs" / "simulation-tables.md").read_text()
SHOWN = re.findall(
    r"^```\n(prfaasctl .*?)\n```\n\n```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE
)


def without_digests(text: str) -> str:
    """A digest is of every last bit, which another machine's mathematics may round otherwise."""
    return re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", text)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_says_what_is_documented(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run_command(shlex.split(command)[1:], as_json=False) == 0
    assert without_digests(capsys.readouterr().out) == without_digests(shown)


def test_every_option_that_is_named_is_one() -> None:
    options = {f"--{name.replace('_', '-')}" for name in simulate.__annotations__}
    named = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    assert named - {"--json"} <= options
    assert len(named) > 8


def test_the_prose_names_only_figures_of_the_tables() -> None:
    results = TEXT[TEXT.index("## Under load") : TEXT.index("## What is measured")]
    figures = re.findall(r"\d+\.\d\d(?= s\b| and| against|,|\))", results)
    known = set(re.findall(r"\d+\.\d\d", TABLES)) | {"2.22", "4.44"}
    assert len(figures) > 8
    assert [figure for figure in figures if figure not in known] == []
