"""`prfaasctl simulate`: what it says, what it writes, and how it fails."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prfaas.sim.policies.contender import CONTENDERS
from prfaas_cli.app import run_command

SMALL = ["--requests", "300", "--policy", "prfaas", "--policy", "homogeneous"]
TRACE = """\
{"prfaas_trace": 1, "block_tokens": 512}
{"arrival_s": 0.0, "prompt_tokens": 1100, "output_tokens": 52, "blocks": [46, 47, 2353]}
{"arrival_s": 2.0, "prompt_tokens": 1324, "output_tokens": 9, "blocks": [46, 47, 11]}
{"arrival_s": 3.0, "prompt_tokens": 600, "output_tokens": 7, "blocks": [46, 9]}
"""


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run_command(["simulate", *arguments, "--json"], as_json=True) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(["simulate", *arguments], as_json=False) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def test_all_policies_answer_every_request(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer_of(capsys, "--requests", "400")
    assert [run["policy"] for run in found["runs"]] == list(CONTENDERS)
    for run in found["runs"]:
        counts = run["summary"]["counts"]
        assert counts["answered"] == counts["requests"] > 300
        assert run["models"]
        assert run["source"]
        assert run["rate_per_s"] == pytest.approx(0.8 * run["lambda_max"])
        assert len(run["summary"]["series"]["pd_prefill"]) == 120


def test_the_same_seed_gives_the_same_and_another_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, again = (answer_of(capsys, *SMALL, "--seed", "5") for _ in range(2))
    other = answer_of(capsys, *SMALL, "--seed", "6")
    for run in (*first["runs"], *again["runs"]):
        del run["cpu_s"]
    assert first == again
    assert first["digest"] != other["digest"]
    assert len({run["digest"] for found in (first, other) for run in found["runs"]}) == 4


def test_one_rate_is_the_same_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer_of(capsys, *SMALL, "--rate", "1.25", "--arrivals", "deterministic")
    assert [run["rate_per_s"] for run in found["runs"]] == [1.25, 1.25]
    assert [run["summary"]["offered_per_s"] for run in found["runs"]] == pytest.approx(
        [1.25, 1.25], rel=0.01
    )


def test_text_names_models_sources_and_the_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", *SMALL], as_json=False) == 0
    text = capsys.readouterr().out
    assert "source: PrfaaS §3.4" in text
    assert re.search(r"^digest [0-9a-f]{16}$", text, re.MULTILINE)
    assert "TTFT MEAN" in text


def test_a_trace_is_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(TRACE)
    found = answer_of(
        capsys, "--trace", str(file), "--speed", "2", "--cache-tokens", "100000",
        "--policy", "mooncake",
    )  # fmt: skip
    summary = found["runs"][0]["summary"]
    assert found["runs"][0]["rate_per_s"] == pytest.approx(2 * 2 / 3)
    assert summary["counts"]["answered"] == summary["counts"]["requests"] == 2


def test_a_fault_is_felt_where_its_target_is(capsys: pytest.CaptureFixture[str]) -> None:
    fault = ["--fault", "kill:pd-prefill-0@10-60", "--fault", "link:prfaas=0.5@10-60"]
    plain, hurt = (answer_of(capsys, *SMALL, *more)["runs"] for more in ((), fault))
    for before, after in zip(plain, hurt, strict=True):
        assert after["summary"]["ttft"]["mean"] > before["summary"]["ttft"]["mean"]


def test_what_plan_prints_can_be_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer_of(
        capsys, "--requests", "300", "--policy", "threshold", "--expectation", "mean",
        "--threshold", "30000", "--n-p", "2", "--n-d", "6", "--link", "10gbit",
    )  # fmt: skip
    run = found["runs"][0]
    assert found["expectation"] == "mean"
    assert run["note"] == "t = 30,000, N_p/N_d = 2/6"
    assert run["instances"] == {"prfaas": 4, "pd": 8}
    assert run["cost_per_hour"] == 16.0
    assert run["replanned"] is None
    (cluster,) = run["summary"]["clusters"]
    assert (cluster["name"], cluster["link"]) == ("prfaas", run["summary"]["link"])
    assert 0 < run["summary"]["link"]["peak_share"] <= 1


def test_what_a_table_hides_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    late = ["--fault", "link:prfaas=0.5@90000-90001", "--rate", "3.6"]
    both = ["--requests", "300", "--policy", "prfaas", "--policy", "threshold"]
    assert run_command(["simulate", *both, *late], as_json=False) == 0
    text = capsys.readouterr().out
    assert "prfaas, threshold: the same figures" in text
    assert "fault without effect: link prfaas = 0.5 from 90000 s" in text
    assert re.search(r"overloaded: 3\.\d\d requests per second came, Lambda_max is 3\.15", text)
    assert "re-planning: revisions 0, conversions 0; at the end t = 19,800, N_p/N_d = 3/5" in text
    assert re.search(r"requests came until \d+ s, the run ended at \d+ s", text)


def test_the_report_is_whole_in_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    assert run_command(["simulate", *SMALL, "--report", str(file)], as_json=False) == 0
    text = capsys.readouterr().out
    html = file.read_text()
    assert "<script" not in html
    assert re.findall(r"(?:src|href)=\"(?!#)", html) == []
    assert re.findall(r"url\((?!#)|@import", html) == []
    assert html.count("currentColor") > 100  # text of the figures, in the dark too
    assert "#0a0b0c" not in html
    assert html.count("<svg") == 4 + 2 * 2
    for part in ("prefers-color-scheme: dark", 'name="viewport"', "TTFT", "PrfaaS §3.4"):
        assert part in html
    for svg in re.findall(r"<svg[^>]*>", html):
        assert " width=" not in svg
    digest = re.findall(r"^digest (\w+)$", text, re.MULTILINE)[0]
    assert f"<code>{digest}</code>" in html
    replayed = re.findall(r"<pre>(.*?)</pre>", html)[0]
    assert run_command(shlex.split(replayed)[1:], as_json=False) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--policy", "fastest"], "policy: 'fastest'"),
        (["--case", "nowhere.toml"], "nowhere.toml"),
        (["--load", "-1"], "--load"),
        (["--load", "nan"], "--load"),
        (["--rate", "0"], "--rate"),
        (["--rate", "inf"], "--rate"),
        (["--rate", "1", "--load", "0.5"], "--load, --rate"),
        (["--requests", "0"], "--requests"),
        (["--requests", "1000000000"], "--requests"),
        (["--seed", "-1"], "seed"),
        (["--layers", "0"], "layers"),
        (["--rtt", "9"], "--rtt"),
        (["--ttft", "0"], "--ttft"),
        (["--ttft", "nan"], "--ttft"),
        (["--cache-tokens", "-1"], "--cache-tokens"),
        (["--cache-tokens", "1"], "--cache-tokens"),
        (["--speed", "2"], "--speed"),
        (["--arrivals", "gamma:-1"], "cv"),
        (["--arrivals", "often"], "--arrivals"),
        (["--trace", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--fault", "kill:pd-prefill-99@1-2"], "pd-prefill-99"),
        (["--fault", "kill"], "--fault"),
        (["--report", "report.pdf"], "--report"),
        (["--report", "/nowhere/report.html", *SMALL], "a folder that exists, not /nowhere"),
        (["--fault", "link:nosuch=0.5@1-2"], "no such cluster: allowed: prfaas"),
    ],
)
def test_bad_values_are_named_in_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named in refusal_of(capsys, *arguments)


@pytest.mark.parametrize(
    ("content", "named"), [("", "trace.jsonl"), (TRACE.splitlines()[0] + "\n", "trace.jsonl")]
)
def test_an_empty_trace_is_refused(
    content: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(content)
    assert named in refusal_of(capsys, "--trace", str(file))


def test_options_that_a_trace_rules_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(TRACE)
    for option, value in (("--load", "0.5"), ("--rate", "1"), ("--arrivals", "poisson")):
        assert option in refusal_of(capsys, "--trace", str(file), option, value)
    assert "requests = 9" in refusal_of(capsys, "--trace", str(file), "--requests", "9")


def test_an_interrupt_ends_it_in_one_line() -> None:
    command = [sys.executable, "-m", "prfaas_cli", "simulate", "--requests", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert err.decode().splitlines()[-1] == "prfaasctl: error: interrupted"
    assert b"Traceback" not in err


def test_a_run_of_one_moment_with_every_request_refused_has_an_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    head, first, *_ = TRACE.splitlines(keepends=True)
    trace.write_text(head + first + first)
    dead = [f"kill:pd-prefill-{index}@0-900" for index in range(10)]
    faults = [word for fault in dead for word in ("--fault", fault)]
    found = answer_of(capsys, "--trace", str(trace), "--policy", "homogeneous", *faults)
    assert found["runs"][0]["summary"]["counts"]["refused"] == 2
    assert found["runs"][0]["summary"]["goodput_per_s"] == 0


def test_a_report_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text("old")
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "from prfaas_cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "simulate", *SMALL, "--report", str(report)]
    done = subprocess.run(command, text=True, check=False, capture_output=True, timeout=100)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert report.read_text() == "old"
    assert list(tmp_path.iterdir()) == [report]
