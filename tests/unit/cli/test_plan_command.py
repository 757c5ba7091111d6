"""`prfaasctl plan`, called as the command line calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prfaas.planning.paper import PAPER_CASE
from prfaas_cli.app import run_command

KEYS = {
    "threshold_tokens",
    "n_prfaas",
    "n_p",
    "n_d",
    "theta_prfaas",
    "theta_pd_p",
    "theta_pd_d",
    "lambda_max",
    "offload_fraction",
    "l_long_tokens",
    "egress_gbps",
    "bottleneck",
    "baselines",
    "sensitivity",
    "utilisation",
    "ratios",
    "ttft",
    "search_ms",
}


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run_command(["plan", *arguments, "--json"], as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(["plan", *arguments], as_json=False) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_the_papers_case_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--case", "paper")
    assert set(found) >= KEYS
    assert (found["threshold_tokens"], found["n_prfaas"]) == (19_600, 4)
    assert (found["n_p"], found["n_d"], found["bottleneck"]) == (3, 5, "prfaas_prefill")
    assert found["lambda_max"] == pytest.approx(3.24, rel=0.025)
    assert found["egress_gbps"] == pytest.approx(12.2, abs=0.05)
    homogeneous, naive = found["baselines"]["homogeneous"], found["baselines"]["naive"]
    assert (homogeneous["n_p"], homogeneous["n_d"]) == (9, 3)
    assert (naive["n_p"], naive["n_d"]) == (0, 8)
    assert found["ratios"]["plan"] == pytest.approx(1.54, rel=0.02)
    assert found["requests_per_cost"] / homogeneous["requests_per_cost"] == pytest.approx(
        1.15, rel=0.02
    )
    assert found["utilisation"]["link"] == pytest.approx(0.13, abs=0.01)
    assert {row["cluster"] for row in found["sensitivity"]} == {"prfaas", "pd"}
    assert 0 < found["search_ms"] < 1000


def test_options_fix_what_they_name(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = planned(capsys, "--threshold", "30000", "--n-p", "2")
    assert (fixed["threshold_tokens"], fixed["n_p"], fixed["n_d"]) == (30_000, 2, 6)
    assert planned(capsys, "--n-d", "3")["n_p"] == 5
    thin = planned(capsys, "--link", "4gbit")
    assert thin["egress_gbps"] <= 4.0001
    assert thin["ratios"]["plan"] < 1
    exact = planned(capsys, "--expectation", "exact")
    assert exact["lambda_max"] < planned(capsys)["lambda_max"]


def test_for_a_person_everything_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["plan"], as_json=False) == 0
    out, err = capsys.readouterr()
    for said in ("bottleneck", "homogeneous PD", "one more instance of pd", "10 Gbps more"):
        assert said in out
    assert "searched 10584 combinations" in err


def test_a_case_of_ones_own_with_a_trace_and_two_clusters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = PAPER_CASE.replace(
        "lengths = { mu = 9.90, sigma = 1.00, low = 128, high = 131072 }", 'trace = "seen.csv"'
    )
    text += '[[prfaas]]\nname = "far"\nprofile = "paper-1t-h200"\ninstances = 1\nlink = "1gbit"\n'
    (tmp_path / "site.toml").write_text(text)
    rows = [f"2023-11-16 18:{n // 60:02}:{n % 60:02},{300 * n + 1},10" for n in range(200)]
    heading = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    (tmp_path / "seen.csv").write_text(heading + "\n".join(rows))
    arguments = ["--case", str(tmp_path / "site.toml")]
    found = planned(capsys, *arguments)
    assert [cluster["name"] for cluster in found["clusters"]] == ["prfaas", "far"]
    assert sum(cluster["share"] for cluster in found["clusters"]) == pytest.approx(1)
    assert found["n_prfaas"] == 5
    assert run_command(["plan", *arguments], as_json=False) == 0
    assert "  far " in capsys.readouterr().out


def test_a_site_without_prfaas_clusters(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    begin, end = PAPER_CASE.index("[[prfaas]]"), PAPER_CASE.index("[pd]")
    (tmp_path / "alone.toml").write_text(PAPER_CASE[:begin] + PAPER_CASE[end:])
    found = planned(capsys, "--case", str(tmp_path / "alone.toml"))
    assert found["lambda_max"] == pytest.approx(1.41, rel=0.01)
    assert (found["baselines"]["naive"], found["n_prfaas"], found["clusters"]) == (None, 0, [])
    assert run_command(["plan", "--case", str(tmp_path / "alone.toml")], as_json=False) == 0


def test_a_plan_that_lets_nothing_through_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    begin, end = PAPER_CASE.index("[[prfaas]]"), PAPER_CASE.index("[pd]")
    alone = PAPER_CASE[:begin] + PAPER_CASE[end:].replace("instances = 8 ", "instances = 1 ")
    (tmp_path / "alone.toml").write_text(alone)
    said = refused(capsys, "--case", str(tmp_path / "alone.toml"))
    assert "case paper: nothing gets through" in said


def test_all_offloaded_is_drawn_as_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = planned(capsys, "--n-p", "0", "--plot", str(tmp_path / "plan.svg"))
    assert (found["offload_fraction"], found["theta_pd_p"]) == (1, 0)
    assert (tmp_path / "plan.svg").stat().st_size > 10_000


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_curves_are_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str
) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for file in (first, second):
        assert run_command(["plan", "--plot", str(file)], as_json=False) == 0
    begins = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    assert first.read_bytes().startswith(begins[suffix])
    if suffix == ".svg":
        assert first.read_bytes() == second.read_bytes()
        for said in ("KV throughput", "roles at t = 19600", "Theta_prfaas / p"):
            assert f"<!-- {said} -->" in first.read_text()


def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "allowed: paper, or the path of a TOML file" in refused(capsys, "--case", "papper")
    missing = str(tmp_path / "missing.toml")
    assert f"{missing}: No such file" in refused(capsys, "--case", missing)
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff")
    assert "not UTF-8" in refused(capsys, "--case", str(bad))
    bad.write_text(PAPER_CASE.replace("instances = 4", "instances = 0"))
    assert f"{bad}: prfaas[0].instances = 0: allowed" in refused(capsys, "--case", str(bad))
    bad.write_text(PAPER_CASE.replace('"paper-1t-h20"', '"mine.json"'))
    assert "mine.json: No such file" in refused(capsys, "--case", str(bad))
    assert "--link: 'fast'" in refused(capsys, "--link", "fast")
    assert "allowed: a file ending in .svg" in refused(capsys, "--plot", "plan.gif")
    nowhere = str(tmp_path / "none" / "plan.svg")
    assert f"--plot {nowhere}: No such file" in refused(capsys, "--plot", nowhere)
    assert f"{bad}: profile = 'mine.json': " in refused(capsys, "--case", str(bad))
    assert "--n-p 9: allowed: 0 (min_prefill) to 7, as pd has 8" in refused(capsys, "--n-p", "9")
    assert "--n-d 0: allowed: 1 (min_decode) to 8" in refused(capsys, "--n-d", "0")


LIMITED = (
    PAPER_CASE.replace("tpot_s = 0.025", "tpot_s = 0.025\nttft_s = 3.7\nttft_quantile = 0.9")
    + "[constraints]\nmax_cost_per_hour = 15\n"
)


@pytest.fixture
def limited(tmp_path: Path) -> str:
    (tmp_path / "limited.toml").write_text(LIMITED)
    return str(tmp_path / "limited.toml")


def test_what_to_rent_is_said_and_that_the_limits_are_kept(
    capsys: pytest.CaptureFixture[str], limited: str
) -> None:
    found = planned(capsys, "--case", limited)
    assert [row["used"] + row["idle"] for row in found["rent"]] == [4, 8]
    assert sum(row["cost_per_hour"] for row in found["rent"]) == found["cost_per_hour"] <= 15
    assert 0 <= found["ttft_goal"]["spare_s"] == pytest.approx(3.7 - found["ttft_goal"]["plan_s"])
    assert run_command(["plan", "--case", limited], as_json=False) == 0
    out = capsys.readouterr().out
    assert "TO RENT  USED  IDLE" in out
    assert "TTFT goal: P90 with transfer of at most 3.70 s: kept" in out
    assert "cost limit: 15.00 per hour: kept" in out


def test_what_breaks_a_limit_is_marked(capsys: pytest.CaptureFixture[str], limited: str) -> None:
    found = planned(capsys, "--case", limited)
    assert found["baselines"]["homogeneous"]["breaks"] == ["ttft_s"]
    assert found["baselines"]["naive"]["breaks"] == ["max_cost_per_hour"]
    for row in found["sensitivity"]:
        assert row["breaks"] == (["max_cost_per_hour"] if row["cost_per_hour"] > 15 else [])
    assert run_command(["plan", "--case", limited], as_json=False) == 0
    out = capsys.readouterr().out
    assert "16.00, above the limit" in out
    assert "9.72, misses the goal" in out
    assert "per hour, above the limit" in out


def test_a_limit_of_cost_that_is_too_low_names_the_least_that_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "low.toml").write_text(PAPER_CASE + "[constraints]\nmax_cost_per_hour = 1\n")
    said = refused(capsys, "--case", str(tmp_path / "low.toml"))
    assert "case paper: max_cost_per_hour = 1: allowed: 2 or more" in said


def test_a_threshold_that_misses_the_goal_is_named(
    capsys: pytest.CaptureFixture[str], limited: str
) -> None:
    said = refused(capsys, "--case", limited, "--threshold", "1000000")
    assert "case paper: --threshold 1000000: misses ttft_s = 3.7; allowed: one that keeps" in said


def test_the_command_line_starts_without_numpy_and_matplotlib() -> None:
    code = "import sys, prfaas_cli.app; print('numpy' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split() == ["False", "False"]
