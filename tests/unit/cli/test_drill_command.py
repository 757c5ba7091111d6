"""`prfaasctl drill`: what it lists, what it refuses, and the table of all runs."""

import json
import signal
from pathlib import Path

import pytest

from prfaas_cli.drill_lines import series_document, series_lines, track_record
from prfaas_cli.drill_series import Result, _signals_interrupt
from prfaas_cli.main import run
from prfaas_loadtest.drills import library_names, read_drill
from prfaas_loadtest.drills.uninterrupted import uninterrupted


def test_the_library_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "list", "--json"]) == 0
    drills = json.loads(capsys.readouterr().out)["drills"]
    assert [drill["name"] for drill in drills] == library_names()
    assert run(["drill", "list"]) == 0
    assert "link-cut-back" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such-drill"], "drill list"),
        ([], "give drills, or --all"),
        (["link-cut", "--all"], "give drills, or --all"),
        (["link-cut", "--seed", "-1"], "--seed -1"),
        (["link-cut", "--for", "-1"], "--for -1"),
    ],
)
def test_wrong_input_is_one_line_and_two(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drill", "run", *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_drill_that_was_not_run_is_no_success() -> None:
    result = Result(read_drill("link-cut"), 1, None, 0.5, "no root", 3)
    assert series_document([result])["passed"] is False
    assert list(series_lines([result]))[-1] == "0 of 1 drills passed"
    assert "| `link-cut` | 1 | not run |" in track_record([result])


def test_a_drill_file_without_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "run", "/dev/zero"]) == 2
    assert "larger than 1 MiB" in capsys.readouterr().err


def test_a_drill_of_endless_nesting_is_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("x = " + "[" * 5000)
    assert run(["drill", "run", str(file)]) == 2
    assert "not valid TOML" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--report", "--history"])
def test_a_report_that_cannot_be_written_is_told_before_anything_is_deployed(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no-such-folder" / "r.html"
    assert run(["drill", "run", "link-cut", option, str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{option} {path}" in said
    assert "deploying" not in said


def test_one_file_for_several_drills_is_told_before_anything_is_deployed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["drill", "run", "link-cut", "link-loss", "--report", str(tmp_path / "r.html")]
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert "with several drills: a directory" in said
    assert "deploying" not in said


def test_a_terminal_that_closes_lets_a_drill_mend_and_remove_what_it_made() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt), _signals_interrupt():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is before
    with uninterrupted():
        signal.raise_signal(signal.SIGHUP)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _signals_interrupt():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
