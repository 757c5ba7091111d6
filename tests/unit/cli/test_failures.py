import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prfaas_cli.failures import fail, one_line
from prfaas_cli.output import Output

COMMAND = [sys.executable, "-m", "prfaas_cli"]


def run(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [*COMMAND, *arguments], text=True, check=False, timeout=60, **options
    )
    return done


def test_an_error_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(["a\nb\x1b[31m: no such file"], 2, as_json=True) == 2
    out, err = capsys.readouterr()
    assert err == "prfaasctl: error: a\\nb\\x1b[31m: no such file\n"
    assert json.loads(out)["problems"] == ["a\\nb\\x1b[31m: no such file"]
    assert len(one_line("9" * 100_000)) < 2000


def test_what_json_has_no_word_for_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).result({"a": [math.inf, 1.5], "b": (math.nan,)}, list)
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": [None]}


@pytest.mark.parametrize("arguments", [["plan", "--json"], ["plan", "--case", "no.toml", "--json"]])
def test_a_full_disk_at_the_other_end_is_no_traceback(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error:") == 1


def test_a_reader_that_went_away_is_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run(["plan", "--json"], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_names_beyond_ascii_are_escaped_where_the_terminal_has_no_word_for_them(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run(
        ["plan", "--case", str(tmp_path / "päper.toml")], capture_output=True, env=environment
    )
    assert done.returncode == 2
    assert "p\\xe4per.toml" in done.stderr


def test_a_bug_of_ours_is_one_line_too() -> None:
    program = (
        "import sys, prfaas_cli.app as a\n"
        "a.app.command('boom')(lambda: 1 / 0)\n"
        "sys.exit(a.run_command(['boom', *sys.argv[1:]], as_json=False))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("prfaasctl: error: internal error: ZeroDivisionError")
    assert done.stderr.count("\n") == 1
