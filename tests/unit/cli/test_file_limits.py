"""Files that are endless, unnameable or do not fit: one line, and nothing half written."""

import subprocess
import sys
from pathlib import Path

import pytest

from prfaas.planning.paper import PAPER_CASE

COMMAND = [sys.executable, "-m", "prfaas_cli"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["plan", "--case", "/dev/zero"], "/dev/zero: larger than"),
        (["profile", "kv", "--config", "/dev/zero"], "--config /dev/zero: larger than"),
        (["plan", "--case", "a" * 300], "allowed: paper, or the path"),
        (["profile", "show", "a" * 300], "neither a file nor of the catalog"),
        (["plan", "--threshold", "9" * 30], "'--threshold'"),
        (["plan", "--link", "9" * 400 + "gbit"], "--link"),
    ],
)
def test_what_cannot_be_read_is_one_line(arguments: list[str], text: str) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments], text=True, check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("instances = 8 ", "instances = 1000000 ", "pd: instances = 1000000: allowed: at most"),
        ("tpot_s = 0.025", f"tpot_s = {'9' * 400}", "slo.tpot_s"),
        ("tpot_s = 0.025", f"tpot_s = {'9' * 5000}", "not valid TOML"),
        ("tpot_s = 0.025", f"tpot_s = {'[' * 100_000}", "not valid TOML"),
        ("sigma = 1.00", "sigma = 1e-300", "sigma"),
    ],
)
def test_a_case_beyond_all_measure_is_one_line(
    tmp_path: Path, old: str, new: str, text: str
) -> None:
    case = tmp_path / "case.toml"
    case.write_text(PAPER_CASE.replace(old, new))
    done = subprocess.run(
        [*COMMAND, "plan", "--case", str(case)],
        text=True, check=False, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_a_figure_that_does_not_fit_leaves_the_old_one(tmp_path: Path, suffix: str) -> None:
    figure = tmp_path / f"plan.{suffix}"
    figure.write_text("old")
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "from prfaas_cli.main import run\n"
        "sys.exit(run(['plan', '--plot', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(figure)],
        text=True, check=False, capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert figure.read_text() == "old"
    assert list(tmp_path.iterdir()) == [figure]
