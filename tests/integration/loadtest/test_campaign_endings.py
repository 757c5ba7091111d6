"""How a campaign ends that cannot go on: one line or all results, and no process is left."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paced_server import PacedServer, serving
from twin_engines import listening_port as free_port
from waiting import until

PRFAASCTL = Path(sys.executable).with_name("prfaasctl")
CAMPAIGN = """
name = "ending"
requests = {requests}
warmup_share = 0.0
[target]
url = "{url}"
timeout_s = 60
[slo]
ttft_s = 1.0
tpot_s = 1.0
[[workload]]
rate_per_s = 20
arrivals = {{ process = "even" }}
lengths = {{ tokens = 50 }}
output_tokens = 4
"""


def command(folder: Path, url: str, requests: int, *options: str) -> list[str]:
    file = folder / "c.toml"
    file.write_text(CAMPAIGN.format(url=url, requests=requests))
    return [str(PRFAASCTL), "campaign", "run", str(file), "--out", str(folder / "run"), *options]


@contextlib.contextmanager
def started(arguments: list[str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def processes_with(word: str) -> list[str]:
    """Return the command lines of living processes that hold the word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if word in line:
                found.append(line)
    return found


def test_a_terminal_that_closes_ends_the_load_and_keeps_what_was_measured(tmp_path: Path) -> None:
    server = PacedServer(service_s=0.0)
    with serving(server), started(command(tmp_path, server.url, 4000, "--json")) as process:
        samples = tmp_path / "run" / "samples.jsonl"
        until(lambda: samples.exists() and samples.stat().st_size > 1000, limit_s=60)
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert json.loads(out)["interrupted"]
    until(lambda: not processes_with(str(tmp_path / "run")))


def test_ctrl_c_before_the_workers_came_is_one_line(tmp_path: Path) -> None:
    options = ["--remote-workers", "1", "--master-port", str(free_port()), "--json"]
    with started(command(tmp_path, "http://127.0.0.1:1", 10, *options)) as process:
        until(lambda: processes_with(f"load master {tmp_path / 'run'}"), limit_s=60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert "Traceback" not in err
    assert json.loads(out)["error"] == "interrupted"
    assert not processes_with(str(tmp_path / "run"))


@pytest.mark.parametrize("option", ["--web", "--master-port"])
def test_a_port_that_is_taken_is_told_before_anything_is_sent(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        extra = [] if option == "--web" else ["--workers", "1"]
        arguments = command(tmp_path, "http://127.0.0.1:1", 10, option, port, *extra)
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stderr.splitlines() == [
        f"prfaasctl: error: {option} {port} at 127.0.0.1: Address already in use"
    ]
    assert not (tmp_path / "run").exists()


def test_a_campaign_that_nobody_answered_failed_and_says_so(tmp_path: Path) -> None:
    arguments = command(tmp_path, "http://127.0.0.1:1", 5, "--json")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    measured = json.loads(done.stdout)["measured"]
    assert measured["outcomes"] == {"broken": 5}
    assert measured["ttft"]["mean"] is None
    assert "no request was answered" in done.stderr
    assert "Warning" not in done.stderr
    assert (tmp_path / "run" / "report.html").exists()
