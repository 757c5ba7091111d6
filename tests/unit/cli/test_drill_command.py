"""`prfaasctl drill`: what it lists, what it refuses, and the table of all runs."""

import json

import pytest

from prfaas_cli.drill_lines import series_document, series_lines, track_record
from prfaas_cli.drill_series import Result
from prfaas_cli.main import run
from prfaas_loadtest.drills import library_names, read_drill


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
