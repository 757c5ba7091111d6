"""docs/planning.md: its commands say what stands below them, its tables are made by a command."""

import re
import shlex
from pathlib import Path

import pytest

from prfaas.planning import parse_case
from prfaas.planning.paper import PAPER_CASE, paper_case
from prfaas.throughput import equations
from prfaas_cli.app import run_command
from prfaas_cli.planning_tables import filled, main

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "planning.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(prfaasctl .*)$", TEXT, re.MULTILINE)
SHOWN = dict(
    re.findall(r"^```\n(prfaasctl .*?)\n```\n\n```text\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_works(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    assert run_command(words, as_json="--json" in words) == 0
    out = capsys.readouterr().out
    assert out == SHOWN.get(command, out)


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) >= 6
    assert len(SHOWN) >= 1


def test_the_committed_tables_are_what_the_command_makes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert TEXT.count("<!-- end ") == 4
    assert filled(TEXT) == TEXT
    blank = re.sub(r"(<!-- table-6 -->).*?(<!-- end table-6 -->)", r"\1\n\2", TEXT, flags=re.DOTALL)
    assert blank != TEXT
    copy = tmp_path / "planning.md"
    copy.write_text(blank, encoding="utf-8")
    main([str(copy)])
    assert capsys.readouterr().out == TEXT
    assert copy.read_text(encoding="utf-8") == blank
    main(["--write", str(copy)])
    assert copy.read_text(encoding="utf-8") == TEXT


def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "| Theta_prfaas | 1.61 | 1.57 | -2.4% |" in capsys.readouterr().out


def test_the_help_says_how_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--write" in capsys.readouterr().out


def test_the_documented_case_is_the_papers() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert example == PAPER_CASE
    assert parse_case(example, source="docs") == paper_case()


def test_the_documented_functions_exist() -> None:
    names = re.findall(r"`equations\.(\w+)`", TEXT)
    assert len(names) >= 7
    assert all(callable(getattr(equations, name)) for name in names)
