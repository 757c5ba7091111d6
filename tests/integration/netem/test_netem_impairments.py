"""What every backend of this machine does to single packets, against what it is set to.

The tolerances are those of `link_check`: four standard deviations and 0.2 % for shares, 0.5 ms
below and 5 ms or 25 % above for delays. A busy machine delays packets; it never loses, harms or
reorders them, so only delays are tried again.
"""

import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from prfaas.errors import PreflightError
from prfaas_netem import link_check, namespace, probes, regions
from prfaas_netem.backend import available
from prfaas_netem.client import set_link, show
from prfaas_netem.kernel_link import netem_arguments
from prfaas_netem.link_check import Verdict
from prfaas_netem.link_presets import PRESETS
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.loss import BurstLoss
from prfaas_netem.schedule import Schedule, Step
from prfaas_netem.stream_probe import measure_stream
from prfaas_netem.topology_file import load_topology
from prfaas_netem.traffic_control import run_tc
from prfaas_netem.ways import Way

pytestmark = pytest.mark.root

EXAMPLE = Path(__file__).parents[2] / "data/topologies/three-regions.toml"
TRIES = 5
BACKENDS = available() if os.geteuid() == 0 else ("nfqueue",)


@pytest.fixture(params=BACKENDS)
def link(request, deploy):
    return deploy(backend=request.param)


def stream(link, spec, *, count=3000, interval_s=0.0003):
    set_link(link.control, spec, source="a", target="b")
    topology = link.topology.with_ways(Way("a", "b", spec))
    return measure_stream(topology, source="a", target="b", count=count, interval_s=interval_s)


def assert_shares(spec, seen):
    checks = link_check.check_shares(
        spec,
        sent=seen.sent,
        lost=seen.share(seen.lost),
        corrupted=seen.share(seen.corrupted),
        duplicated=seen.share(seen.duplicated),
        overtook=seen.share(seen.overtook),
    )
    assert [check for check in checks if check.verdict is not Verdict.OK] == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"burst_loss": "1%,20%"},
        {"reordering": "2%"},
        {"loss": "3%", "corruption": "3%", "duplication": "3%", "reordering": "3%"},
    ],
)
def test_shares_are_as_set(link, options):
    spec = LinkSpec.parse(**options)
    seen = stream(link, spec)
    assert_shares(spec, seen)
    if "burst_loss" in options:
        assert seen.loss_run > 2.5
    if "loss" in options:
        assert seen.loss_run < 1.3


def test_a_delay_is_spread_as_set(link):
    spec = LinkSpec.parse(delay="40ms", jitter="6ms", jitter_distribution="normal")
    for _ in range(TRIES):
        seen = stream(link, spec, count=60, interval_s=0.02)
        checks = [
            link_check.check_delay(spec, seen.delay_median_s),
            link_check.check_jitter(spec, seen.spread_s),
        ]
        if all(check.verdict is Verdict.OK for check in checks):
            return
    pytest.fail(f"{checks}")


def test_tcp_survives_a_link_that_does_everything(link):
    spec = PRESETS["lossy"].changed(
        burst_loss="1%,30%", corruption="0.5%", duplication="0.5%", reordering="0.5%", rtt="6ms"
    )
    set_link(link.control, spec)
    measured = probes.measure_rate(link.topology, source="a", target="b", seconds=1.0)
    assert measured.received_bytes > 50_000


def test_harm_that_comes_and_goes_loses_no_message(deploy):
    """Between super-packets and copies of whole packets, while a stream runs."""
    link = deploy(LinkSpec(delay_s=0.001), backend="nfqueue")
    sender = threading.Thread(
        target=probes.measure_rate,
        args=(link.topology,),
        kwargs={"source": "a", "target": "b", "seconds": 1.5},
    )
    sender.start()
    while sender.is_alive():
        set_link(link.control, LinkSpec(delay_s=0.001, corruption=0.001, duplication=0.001))
        set_link(link.control, LinkSpec(delay_s=0.001))
        sender.join(0.02)
    report = show(link.control)["directions"][0]
    assert report["harmed"]["duplicated"] > 0
    assert report["netlink_errors"] == 0


def test_the_same_seed_loses_the_same_packets(deploy):
    """The first packets of two emulators with one seed, before other traffic mixes in."""
    spec = LinkSpec(burst_loss=BurstLoss(enter=0.1, leave=0.3))
    outcomes = []
    for _ in range(2):
        link = deploy(spec, seed=11, backend="nfqueue")
        assert show(link.control)["seed"] == 11
        seen = measure_stream(link.topology, source="a", target="b", count=300, interval_s=0.0005)
        outcomes.append((seen.lost, seen.loss_run))
        link.stop()
    assert outcomes[0] == outcomes[1]


def test_a_schedule_changes_one_way_of_a_running_link(deploy):
    schedule = Schedule(steps=(Step(1.0, LinkSpec(loss=1.0)), Step(2.0, LinkSpec())))
    link = deploy(ways=(Way("a", "b", LinkSpec(), schedule),))
    assert probes.measure_loss(link.topology, source="a", target="b", count=100).lost == 0
    ways = until_schedule_ends(link)
    assert ways[0]["spec"] == LinkSpec().to_json()
    assert ways[0]["drops"]["loss"] > 0
    assert ways[1]["drops"].get("loss", 0) == 0


def until_schedule_ends(link):
    """Send all the time; return the directions when nothing is to change any more."""
    for _ in range(100):
        probes.measure_loss(link.topology, source="a", target="b", count=20)
        ways = show(link.control)["directions"]
        if ways[0]["schedule"]["next_change_in_s"] is None:
            return ways
    pytest.fail(f"{ways}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_regions_have_links_of_their_own(deploy, backend):
    link = deploy(topology=load_topology(EXAMPLE), backend=backend)
    topology = link.topology
    for source, target, wanted_s in (
        ("us", "eu", 0.090),
        ("eu", "asia", 0.020),
        ("asia", "us", 0.020),
    ):
        measured = probes.measure_rtt(topology, source=source, target=target, count=8)
        assert measured.min_s > wanted_s - 0.003
        assert measured.min_s < wanted_s + 0.015
    assert len(show(link.control)["directions"]) == 6


def test_hosts_of_a_region_reach_each_other_and_other_regions(deploy):
    link = deploy(topology=load_topology(EXAMPLE))
    first, second = link.topology.ports("us")
    (far,) = link.topology.ports("asia")
    assert round_trip_s(second, first) < 0.015
    assert 0.019 < round_trip_s(second, far) < 0.040
    assert regions.create(link.topology) == ()


def round_trip_s(source, target):
    """Return the shortest of some handshakes from one host to another."""
    with namespace.inside(target.namespace):
        listener = socket.create_server((target.address, 0))
    times = []
    with listener:
        for _ in range(10):
            with namespace.inside(source.namespace):
                caller = socket.socket()
            with caller:
                caller.settimeout(0.9)
                start = time.perf_counter()
                caller.connect(listener.getsockname())
                times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize(
    "spec",
    [
        *PRESETS.values(),
        LinkSpec.parse(loss="2%", loss_correlation="30%", jitter="2ms"),
        LinkSpec.parse(jitter="1ms", jitter_distribution="paretonormal"),
    ],
)
def test_tc_takes_our_words_for_netem(spec):
    """Where the kernel has no netem, it is the kernel that refuses, and not tc."""
    refused = contextlib.nullcontext()
    if "kernel" not in BACKENDS:
        refused = pytest.raises(PreflightError, match="Specified qdisc kind is unknown")
    with namespace.throwaway(), refused:
        run_tc("qdisc", "add", "dev", "lo", "root", *netem_arguments(spec))


def test_tc_refuses_what_is_no_word_of_netem():
    """So that the test above can fail."""
    with namespace.throwaway(), pytest.raises(PreflightError, match="Unknown loss parameter"):
        run_tc("qdisc", "add", "dev", "lo", "root", "netem", "loss", "gemini", "1%")


def test_a_missing_tc_is_told(monkeypatch):
    monkeypatch.setattr("prfaas_netem.traffic_control._SYSTEM_PATHS", "/nowhere")
    monkeypatch.setattr(subprocess, "run", _not_found)
    with pytest.raises(PreflightError, match="tc is not installed"):
        run_tc("qdisc")


def _not_found(*_args, **_options):
    raise FileNotFoundError
