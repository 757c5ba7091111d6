"""Every command of docs/workloads.md says what stands below it, and its prose says the same."""

import gzip
import hashlib
import json
import re
import shlex
from pathlib import Path

import pytest

from prfaas.workload import parse_trace
from prfaas_cli.app import run_command

ROOT = Path(__file__).parents[3]
TRACES = ROOT / "loadtest" / "traces"
TEXT = (ROOT / "docs" / "workloads.md").read_text()
SHOWN = re.findall(
    r"^```\n(prfaasctl .*?)\n```\n\n```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_says_what_is_documented(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run_command(shlex.split(command)[1:], as_json=False) == 0
    assert capsys.readouterr().out == shown


def test_every_command_has_its_output() -> None:
    assert len(SHOWN) == len(re.findall(r"^prfaasctl ", TEXT, re.MULTILINE)) >= 7


def test_the_prose_names_only_figures_of_the_tables() -> None:
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    tables = " ".join(output for _, output in SHOWN).split()
    figures = re.findall(r"\d+(?:\.\d+)?%", prose)
    figures += re.findall(r"(?:t is|falls to|from|to|or|with) (\d{4,}|\d\.\d\d)\b", prose)
    assert len(figures) > 15
    assert [figure for figure in figures if figure not in tables] == []


def test_the_documented_heading_is_of_our_format() -> None:
    example = re.search(r"^```json\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert example is not None
    assert json.loads(example[1].splitlines()[0])["prfaas_trace"] == 1
    assert parse_trace(example[1], "example").tenant_names == ("a",)


def test_the_traces_are_what_their_readme_says() -> None:
    sums = re.findall(r"^([0-9a-f]{64})  (\S+)$", (TRACES / "README.md").read_text(), re.MULTILINE)
    assert len(sums) == 2
    for digest, name in sums:
        content = gzip.decompress((TRACES / f"{name}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest
