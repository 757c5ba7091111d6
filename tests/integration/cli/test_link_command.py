import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from waiting import read, until

from prfaas_cli.bring_up import BringUp
from prfaas_cli.options import DeployOptions
from prfaas_cli.output import Output
from prfaas_cli.place import Place
from prfaas_cli.process_plan import plan_deployment
from prfaas_cli.sweep import sweep
from prfaas_netem import inside
from prfaas_netem.traffic_control import run_tc

pytestmark = pytest.mark.root

NAME = "clilink"
TRIES = 3  # a busy machine delays packets


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A deployment of which only the link runs."""
    place = Place(tmp_path_factory.mktemp("s"), NAME)
    place.directory.mkdir()
    options = DeployOptions(("a", "b"), "/m", 18712, 512, "1gbit", "20ms", "float32", ())
    plan = plan_deployment(place, options, etcd="etcd", start_timeout_s=9.0)
    few = tuple(spec for spec in plan.processes if spec.name == "link")
    bring_up = BringUp(place, Output(as_json=False))
    try:
        bring_up.write_files(replace(plan, processes=few), options, fresh=True)
        bring_up.make_regions(plan)
        bring_up.start_supervisor()
        until(lambda: times_ready(place) == 1)
        yield place
    finally:
        sweep(place, keep_logs=False, say=lambda _: None)


def times_ready(place: Place) -> int:
    log = place.log("link")
    return log.read_text().count('"ready"') if log.exists() else 0


def run(place: Place, *arguments: str, code: int | None = 0) -> Any:
    """Run with --json and return the document; any exit status will do for None."""
    flags = ["--name", NAME, "--state-dir", str(place.root), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "prfaas_cli", *arguments, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert code in (None, done.returncode), done.stderr
    return json.loads(done.stdout)


def loss(document: dict[str, Any]) -> dict[str, float]:
    return {way["from"]: way["spec"]["loss"] for way in document["directions"]}


def delays(document: dict[str, Any]) -> dict[str, float]:
    return {way["from"]: way["spec"]["delay_s"] for way in document["directions"]}


def test_show_gives_what_is_set_and_what_is_measured(place: Place) -> None:
    document = run(place, "link", "show")
    assert {way["spec"]["rate_bits_per_s"] for way in document["directions"]} == {10**9}
    for measured in document["measured"]:
        assert 0.018 < measured["rtt_s"] < 0.2
        assert 1e6 < measured["rate_bits_per_s"] < 1.2e9
    assert "measured" not in run(place, "link", "show", "--no-measure")


def test_a_change_is_live_and_outlives_the_emulator(place: Place) -> None:
    changed = run(place, "link", "set", "b-a", "--rtt", "40ms")
    assert delays(changed) == {"a": 0.02, "b": 0.02}
    emulator = read(place.supervisor_file)["processes"]["link"]["pid"]
    os.kill(emulator, signal.SIGKILL)
    until(lambda: read(place.supervisor_file)["processes"]["link"]["pid"] not in (0, emulator))
    until(lambda: times_ready(place) == 2)
    after = run(place, "link", "show", "--no-measure")
    assert delays(after) == {"a": 0.02, "b": 0.02}
    assert {way["spec"]["rate_bits_per_s"] for way in after["directions"]} == {10**9}


def test_one_way_changes_one_way(place: Place) -> None:
    run(place, "link", "set", "a-b", "--rtt", "20ms")
    document = run(place, "link", "set", "b-a", "--one-way", "--delay", "30ms", "--loss", "1%")
    assert delays(document) == {"a": 0.01, "b": 0.03}
    assert {way["from"]: way["spec"]["loss"] for way in document["directions"]} == {
        "a": 0,
        "b": 0.01,
    }
    run(place, "link", "set", "a-b", "--loss", "0%", "--rtt", "20ms")


def test_one_way_outlives_the_emulator_as_well(place: Place) -> None:
    run(place, "link", "set", "b-a", "--one-way", "--loss", "3%", "--loss-correlation", "50%")
    before = times_ready(place)
    os.kill(read(place.supervisor_file)["processes"]["link"]["pid"], signal.SIGKILL)
    until(lambda: times_ready(place) == before + 1)
    after = run(place, "link", "show", "--no-measure")
    assert loss(after) == {"a": 0, "b": 0.03}
    run(place, "link", "set", "a-b", "--loss", "0%")


def test_a_preset_and_what_differs_from_it(place: Place) -> None:
    document = run(place, "link", "set", "a-b", "--preset", "metro", "--rate", "50mbit")
    assert delays(document) == {"a": 0.0005, "b": 0.0005}
    assert {way["spec"]["rate_bits_per_s"] for way in document["directions"]} == {50 * 10**6}
    assert (
        "'moon'; allowed: metro"
        in run(place, "link", "set", "a-b", "--preset", "moon", code=2)["error"]
    )
    run(place, "link", "set", "a-b", "--preset", "cross-region", "--rate", "1gbit")


def test_probe_finds_the_link_as_set(place: Place) -> None:
    run(place, "link", "set", "a-b", "--preset", "metro", "--rtt", "10ms", "--rate", "50mbit")
    run(place, "link", "set", "a-b", "--one-way", "--loss", "2%", "--duplication", "1%")
    for _ in range(TRIES):
        document = run(place, "link", "probe", code=None)
        if document["as_set"]:
            break
    assert document["as_set"], document
    (there, back) = document["ways"]
    assert (there["from"], back["from"]) == ("a", "b")
    found = {check["quantity"]: check for check in there["checks"]}
    assert found["loss"]["set"] == 0.02
    assert found["loss"]["measured"] > 0.005
    assert found["duplication"]["measured"] > 0.003
    assert found["rate"]["measured"] < 58e6


def test_probe_notices_a_link_that_is_not_as_set(place: Place) -> None:
    """A queue behind the emulator's back that lets nothing through in time."""
    calm = ("--preset", "metro", "--jitter", "0ms", "--rtt", "10ms", "--rate", "50mbit")
    run(place, "link", "set", "a-b", *calm)
    tbf = ("root", "tbf", "rate", "5mbit", "burst", "10000", "limit", "100000")
    interface = ("dev", "to-b")
    with inside(f"prfaas-{NAME}-wan"):
        run_tc("qdisc", "replace", *interface, *tbf)
    try:
        document = run(place, "link", "probe", "a-b", code=1)
    finally:
        with inside(f"prfaas-{NAME}-wan"):
            run_tc("qdisc", "del", *interface, "root")
    run(place, "link", "set", "a-b", "--preset", "cross-region", "--rate", "1gbit")
    verdicts = {check["quantity"]: check["verdict"] for check in document["ways"][0]["checks"]}
    assert verdicts["rate"] == "off"


@pytest.mark.parametrize("link", ["a-c", "ab", "a-b-a", "a-a"])
def test_a_link_that_is_not_there_is_named(place: Place, link: str) -> None:
    assert link in run(place, "link", "set", link, "--rtt", "20ms", code=2)["error"]


def test_status_says_what_does_not_run_and_exits_1(place: Place) -> None:
    document = run(place, "status", code=1)
    assert document["processes"]["link"]["restarts"] >= 0
    assert document["processes"]["link"]["memory_bytes"] > 0
    said = "\n".join(document["problems"])
    assert "etcd does not answer" in said
    assert "the gateway is not ready" in said
    assert "b-decode-0 is not serving" in said


def test_without_json_it_is_told_to_people(place: Place) -> None:
    people = subprocess.run(
        [
            *(sys.executable, "-m", "prfaas_cli", "link", "show", "--no-measure"),
            *("--name", NAME, "--state-dir", str(place.root)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "a -> b: 1gbit, 10ms one way ±0.1ms (configured)" in people.stdout
