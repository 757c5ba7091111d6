"""One conformance test for all backends that this machine can run, and what is special to one."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from prfaas.errors import StateError
from prfaas_netem import kernel_link, namespace, probes, regions
from prfaas_netem.backend import available
from prfaas_netem.client import set_link, show
from prfaas_netem.counters import wan_bytes
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.ways import Way

pytestmark = pytest.mark.root

both_ways = pytest.mark.parametrize(("source", "target"), [("a", "b"), ("b", "a")])


TRIES = 5  # a busy machine delays a probe; it never makes a link faster


def assert_rtt(topology, spec, *, source="a", target="b"):
    for _ in range(TRIES):
        measured = probes.measure_rtt(topology, source=source, target=target, count=10)
        assert measured.lost == 0
        assert measured.min_s >= spec.rtt_s - 0.0005
        if measured.median_s <= spec.rtt_s + 0.005:
            return
    pytest.fail(f"{spec}: {measured}")


def assert_rate(topology, bits_per_s, *, source="a", target="b"):
    for _ in range(TRIES):
        measured = probes.measure_rate(topology, source=source, target=target, seconds=2)
        assert measured.bits_per_s < bits_per_s * 1.15
        if measured.bits_per_s > bits_per_s * 0.85:
            return
    pytest.fail(f"{bits_per_s} bit/s: {measured}")


# Without root nothing can be probed; the tests then fail one by one and say why.
BACKENDS = available() if os.geteuid() == 0 else ("nfqueue",)


@pytest.fixture(params=BACKENDS)
def link(request, deploy):
    return deploy(backend=request.param)


class TestConformance:
    def test_reports_its_backend(self, link):
        assert link.ready["event"] == "ready"
        assert link.ready["backend"] == link.backend
        assert show(link.control)["backend"] == link.backend

    @both_ways
    def test_round_trip(self, link, source, target):
        assert_rtt(link.topology, LinkSpec.default(), source=source, target=target)

    def test_live_change_of_delay(self, link):
        for rtt in ("60ms", "2ms", "20ms"):
            spec = LinkSpec.parse(rtt=rtt)
            set_link(link.control, spec)
            assert_rtt(link.topology, spec)

    def test_one_direction_alone(self, link):
        slow = LinkSpec.parse(delay="50ms")
        answer = set_link(link.control, slow, source="a", target="b")
        assert [each["spec"]["delay_s"] for each in answer["directions"]] == [0.05, 0.01]
        assert_rtt(link.topology, LinkSpec.parse(rtt="60ms"))

    @both_ways
    def test_loss(self, link, source, target):
        set_link(link.control, LinkSpec.parse(loss="5%"), source=source, target=target)
        measured = probes.measure_loss(link.topology, source=source, target=target, count=4000)
        assert 0.035 < measured.share < 0.065
        back = probes.measure_loss(link.topology, source=target, target=source, count=500)
        assert back.lost == 0

    @both_ways
    def test_rate(self, link, source, target):
        set_link(link.control, LinkSpec.parse(rate="100mbit"))
        assert_rate(link.topology, 100e6, source=source, target=target)

    def test_jitter_loses_nothing(self, link):
        set_link(link.control, LinkSpec.parse(rtt="20ms", jitter="3ms"))
        measured = probes.measure_rtt(link.topology, source="a", target="b", count=20)
        assert measured.lost == 0
        assert 0.0135 < measured.min_s < measured.median_s < 0.031
        assert measured.max_s - measured.min_s > 0.002

    def test_counts_what_passes(self, link):
        probes.measure_loss(link.topology, source="a", target="b", count=100)
        report = show(link.control)["directions"][0]
        assert report["packets"] >= 100
        assert report["bytes"] >= 100 * 32
        assert wan_bytes(link.topology, "b")["rx_packets"] >= 100

    def test_stops_cleanly_and_the_link_is_down(self, link):
        assert link.stop() == 0
        assert not link.control.exists()
        assert probes.measure_rtt(link.topology, source="a", target="b", count=2).lost == 2

    def test_create_leaves_a_running_link_alone(self, link):
        assert regions.create(link.topology) == ()
        assert_rtt(link.topology, LinkSpec.default())


class TestUserSpaceLink:
    def test_killed_means_no_packet_passes_and_restart_heals(self, deploy):
        link = deploy(backend="nfqueue")
        link.kill()
        lost = probes.measure_loss(link.topology, source="a", target="b", count=50)
        assert lost.lost == 50
        assert probes.measure_rtt(link.topology, source="a", target="b", count=2).lost == 2
        link.start()
        assert_rtt(link.topology, LinkSpec.default())

    def test_before_it_starts_no_packet_passes(self, topology):
        regions.create(topology)
        assert probes.measure_rtt(topology, source="a", target="b", count=2).lost == 2

    def test_change_takes_less_than_ten_milliseconds(self, deploy):
        link = deploy(backend="nfqueue")
        times = []
        for rtt in ("30ms", "20ms", "40ms"):
            start = time.perf_counter()
            set_link(link.control, LinkSpec.parse(rtt=rtt))
            times.append(time.perf_counter() - start)
        assert min(times) < 0.010

    def test_shorter_delay_reaches_packets_already_held(self, deploy):
        link = deploy(LinkSpec.parse(delay="5s"), backend="nfqueue")
        with (
            probes.bound_socket(link.topology, "b", 2) as receiver,
            probes.bound_socket(link.topology, "a", 2) as sender,
        ):
            sender.sendto(b"x", receiver.getsockname())
            time.sleep(0.1)
            start = time.perf_counter()
            set_link(link.control, LinkSpec.parse(delay="10ms"))
            receiver.settimeout(3)
            assert receiver.recv(10) == b"x"
            assert time.perf_counter() - start < 1.0

    def test_modes(self, deploy):
        link = deploy(backend="nfqueue")
        assert link.ready["mode"] == "gso"
        assert set_link(link.control, LinkSpec(loss=0.001))["mode"] == "packet"
        assert set_link(link.control, LinkSpec(loss=0.001, mode="gso"))["mode"] == "gso"
        answer = set_link(link.control, LinkSpec(mode="packet"), source="a", target="b")
        assert [each["mode"] for each in answer["directions"]] == ["packet", "gso"]
        assert answer["mode"] == "mixed"

    def test_per_packet_mode_sees_wire_packets(self, deploy):
        link = deploy(LinkSpec(mode="packet"), backend="nfqueue")
        measured = probes.measure_rate(link.topology, source="a", target="b", seconds=0.5)
        report = show(link.control)["directions"][0]
        assert report["mode"] == "packet"
        assert report["packets"] >= measured.received_bytes / 1448
        assert report["netlink_errors"] == 0

    def test_super_packets_are_faster_than_wire_packets(self, deploy):
        link = deploy(backend="nfqueue")
        assert probes.measure_rate(link.topology, source="a", target="b").bits_per_s > 1e9
        report = show(link.control)["directions"][0]
        assert report["netlink_errors"] == 0
        assert report["drops"]["kernel"] == 0

    def test_a_second_emulator_is_refused(self, deploy, tmp_path):
        link = deploy(backend="nfqueue")
        argv = [sys.executable, "-m", "prfaas_netem.link", "--backend", "nfqueue"]
        argv += ["--topology", str(tmp_path / "topology.json"), "--control", str(tmp_path / "c2")]
        second = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert second.returncode == StateError.exit_code
        assert "another process reads it" in second.stderr
        assert second.stderr.count("\n") == 1
        assert_rtt(link.topology, LinkSpec.default())

    def test_remove_is_refused_while_it_runs(self, deploy):
        link = deploy(backend="nfqueue")
        with pytest.raises(StateError, match=f"{link.pid} "):
            regions.remove(link.topology)
        assert namespace.pids_in(link.topology.router_namespace) == (link.pid,)


def test_kernel_link_rate_and_counters(topology, monkeypatch):
    """All of the kernel link but netem, which not every kernel has: a plain queue stands in."""
    monkeypatch.setattr(kernel_link, "netem_arguments", lambda spec: ["pfifo", "limit", "1000"])
    regions.create(topology)
    towards_b, _ = topology.directions()
    with namespace.inside(topology.router_namespace):
        kernel_link.KernelLink(topology).close()  # as one that was there before
        link = kernel_link.KernelLink(topology)
        link.apply(towards_b, LinkSpec.parse(rate="100mbit"))
    assert_rate(topology, 100e6)
    back = probes.measure_rate(topology, source="b", target="a", seconds=0.5)
    assert back.bits_per_s > 200e6
    with namespace.inside(topology.router_namespace):
        report = link.report(towards_b)
        assert report["bytes"] > 10e6
        assert report["mode"] == "gso"
        link.close()
    assert probes.measure_rtt(topology, source="a", target="b", count=1).lost == 1


def test_kernel_link_tells_sources_of_one_target_apart(topology, monkeypatch):
    """Three regions: two ways end at one interface of the router, each with a rate of its own."""
    monkeypatch.setattr(kernel_link, "netem_arguments", lambda spec: ["pfifo", "limit", "1000"])
    fast, slow = LinkSpec.parse(rate="200mbit"), LinkSpec.parse(rate="40mbit")
    three = replace(topology, regions=("a", "b", "c"), link=fast).with_ways(Way("b", "c", slow))
    regions.create(three)
    with namespace.inside(three.router_namespace):
        link = kernel_link.KernelLink(three)
    assert_rate(three, 200e6, source="a", target="c")
    assert_rate(three, 40e6, source="b", target="c")
    with namespace.inside(three.router_namespace):
        carried = {
            (way.source, way.target): link.report(way)["bytes"] for way in three.directions()
        }
        link.close()
    assert carried["a", "c"] > carried["b", "c"] > carried["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--topology", "/none.json"], 2, "/none.json"),
        (["--backend", "magic"], 2, "--backend"),
        ([], 1, "does not exist"),
    ],
)
def test_wrong_start_is_one_line(topology, tmp_path, arguments, status, text):
    path = tmp_path / "topology.json"
    topology.save(path)
    base = [sys.executable, "-m", "prfaas_netem.link"]
    base += ["--topology", str(path), "--control", str(tmp_path / "control")]
    done = subprocess.run(base + arguments, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert text in done.stderr
    assert done.stdout == ""
