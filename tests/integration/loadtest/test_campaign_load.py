"""Load from real processes on a server whose times are known."""

import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from paced_server import PacedServer, serving
from twin_engines import listening_port as free_port
from waiting import until

from prfaas_loadtest.campaigns import Outcome, Sample, read_samples
from prfaas_loadtest.campaigns.run import RunFolder

PRFAASCTL = Path(sys.executable).with_name("prfaasctl")

CAMPAIGN = """
name = "paced"
requests = {requests}
warmup_share = 0.0
[target]
url = "{url}"
timeout_s = {timeout_s}
[slo]
ttft_s = 1.0
tpot_s = 1.0
"""
EVEN = """
[[workload]]
tenant = "{tenant}"
rate_per_s = {rate}
arrivals = {{ process = "even" }}
lengths = {{ tokens = {tokens} }}
output_tokens = 4
"""


def start(folder: Path, server: PacedServer, text: str, *options: str) -> "subprocess.Popen[str]":
    file = folder / "c.toml"
    file.write_text(text.replace("{url}", server.url))
    arguments = ["campaign", "run", str(file), "--out", str(folder / "run"), "--json", *options]
    return subprocess.Popen(
        [str(PRFAASCTL), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, server: PacedServer, text: str, *options: str) -> dict[str, Any]:
    process = start(folder, server, text, *options)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err[-3000:]
    return dict(json.loads(out))


def campaign(requests: int, *workloads: str, timeout_s: float = 60) -> str:
    head = CAMPAIGN.replace("{requests}", str(requests)).replace("{timeout_s}", str(timeout_s))
    return head + "".join(workloads)


def even(tenant: str, rate: float, tokens: int) -> str:
    return EVEN.format(tenant=tenant, rate=rate, tokens=tokens)


def samples(folder: Path) -> list[Sample]:
    return read_samples(RunFolder(folder / "run").samples)


def test_a_server_that_falls_behind_gets_all_requests_and_its_queue_is_seen(tmp_path: Path) -> None:
    """One at a time, 0.1 s each, 20 a second: the k-th waits for all before it.

    A closed loop would have sent one after the other, and found 0.1 s each.
    """
    with serving(PacedServer(service_s=0.1, alone=True)) as server:
        result = run(tmp_path, server, campaign(40, even("a", 20, 50)))
    found = samples(tmp_path)
    assert [sample.outcome for sample in found] == [Outcome.ANSWERED] * 40
    for place, sample in enumerate(found):
        assert sample.due_s == pytest.approx((place + 1) / 20)
        assert sample.first_s - sample.due_s >= 0.05 * place
    assert found[-1].first_s - found[-1].sent_s > 1.0
    assert result["measured"]["ttft"]["mean"] > 1.0
    assert not result["measured"]["stable"]
    assert result["measured"]["attainment"] < 0.7
    assert all(len(body["prompt"]) == 50 for body in server.bodies)
    assert len({tuple(body["prompt"]) for body in server.bodies}) == 40
    report = (tmp_path / "run" / "report.html").read_text()
    assert report.count("<svg") == 5
    assert "src=" not in report
    assert "http" not in report.replace(server.url, "").replace("http://www.w3.org", "")


def test_every_way_to_fail_is_a_sample(tmp_path: Path) -> None:
    server = PacedServer(
        service_s=0.0, refuse=frozenset({11}), cut=frozenset({12}), stall=frozenset({13})
    )
    workloads = [even(str(tokens), 10, tokens) for tokens in (10, 11, 12, 13, 200)]
    with serving(server):
        result = run(tmp_path, server, campaign(20, *workloads, timeout_s=2))
    outcomes = {(sample.tenant, sample.outcome) for sample in samples(tmp_path)}
    assert outcomes == {
        ("10", Outcome.ANSWERED),
        ("11", Outcome.REFUSED),
        ("12", Outcome.WRONG),
        ("13", Outcome.LATE),
        ("200", Outcome.ANSWERED),
    }
    measured = result["measured"]
    assert measured["attainment"] == pytest.approx(0.4)
    assert measured["offload_fraction"] == pytest.approx(0.2)
    assert measured["errors"]["refused 503 overloaded try again"] == 4
    assert measured["tenants"]["13"]["ttft"]["mean"] > 1.9


def test_workers_divide_the_load_also_one_that_came_by_itself(tmp_path: Path) -> None:
    port = free_port()
    options = ["--workers", "1", "--remote-workers", "1", "--master-port", str(port)]
    with serving(PacedServer(service_s=0.0)) as server:
        arguments = ["campaign", "worker", "--master", f"127.0.0.1:{port}"]
        worker = subprocess.Popen(
            [str(PRFAASCTL), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            result = run(tmp_path, server, campaign(60, even("a", 20, 50)), *options)
            assert worker.wait(20) == 0, worker.communicate()
        finally:
            worker.kill()
            worker.communicate()
    found = samples(tmp_path)
    assert [sample.index for sample in found] == list(range(60))
    assert result["measured"]["outcomes"] == {"answered": 60}
    assert all(sample.sent_s >= sample.due_s for sample in found)


def _answered(port: int) -> list[dict[str, Any]]:
    """Return the rows of Locust's statistics once requests were answered."""
    url = f"http://127.0.0.1:{port}/stats/requests"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
        rows = json.load(page)["stats"]
        return list(rows) if any(row["num_requests"] > 10 for row in rows) else []
    return []


def test_locusts_page_shows_the_load_and_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    port = free_port()
    text = campaign(4000, even("a", 20, 50), even("b", 20, 13))
    with serving(PacedServer(service_s=0.0, stall=frozenset({13}))) as server:
        process = start(tmp_path, server, text, "--web", str(port))
        shown = until(lambda: _answered(port), limit_s=60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert {"TTFT", "E2E"} <= {row["method"] for row in shown}
    result = json.loads(out)
    assert result["interrupted"] is True
    outcomes = result["measured"]["outcomes"]
    assert outcomes["answered"] > 10
    assert outcomes["open"] > 5
    assert sum(outcomes.values()) < 4000
    assert (tmp_path / "run" / "report.html").exists()
    both = [str(tmp_path / "run")] * 2
    done = subprocess.run(
        [str(PRFAASCTL), "campaign", "compare", *both, "--json"], capture_output=True, text=True
    )
    compared = json.loads(done.stdout)
    assert compared["same_requests"] is True
    assert compared["ttft_mean_difference_s"] == [0.0, 0.0]
