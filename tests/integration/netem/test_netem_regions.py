import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyroute2 import netns

from prfaas.errors import StateError
from prfaas_netem import namespace, regions, rules
from prfaas_netem.counters import wan_bytes
from prfaas_netem.enter import argv_in
from prfaas_netem.interface import make_pair
from prfaas_netem.owner import mark, namespaces_of
from prfaas_netem.route_socket import index_of, route_socket_in
from prfaas_netem.topology import Topology

pytestmark = pytest.mark.root


def test_create_builds_everything_once(topology):
    assert not regions.exists(topology)
    made = regions.create(topology)
    assert f"namespace {topology.namespace('a')}" in made
    assert regions.exists(topology)
    assert regions.create(topology) == ()
    assert set(topology.namespaces) == set(namespaces_of(topology.deployment))


def test_create_leaves_this_process_where_it_was(topology):
    before = Path("/proc/thread-self/ns/net").readlink()
    regions.create(topology)
    assert Path("/proc/thread-self/ns/net").readlink() == before


def delete_interface(topology):
    with route_socket_in(topology.namespace("a")) as link:
        link.link("del", index=index_of(link, "wan"))


def take_interface_down(topology):
    with route_socket_in(topology.router_namespace) as link:
        link.link("set", index=index_of(link, "to-b"), state="down")


def change_address(topology):
    with route_socket_in(topology.namespace("b")) as link:
        index = index_of(link, "wan")
        link.flush_addr(index=index)
        link.addr("add", index=index, address="192.0.2.1", prefixlen=24)


def delete_route(topology):
    with route_socket_in(topology.namespace("b")) as link:
        link.flush_routes(dst_len=0, table=254)


def delete_region(topology):
    netns.remove(topology.namespace("a"))


def delete_router(topology):
    netns.remove(topology.router_namespace)


def leave_a_plain_file(topology):
    netns.remove(topology.namespace("b"))
    namespace.path_of(topology.namespace("b")).touch()


def flush_rules(topology):
    with namespace.inside(topology.router_namespace):
        subprocess.run(["iptables", "-t", "mangle", "-F"], check=True)


def open_the_policy(topology):
    with namespace.inside(topology.router_namespace):
        subprocess.run(["iptables", "-t", "mangle", "-P", "FORWARD", "ACCEPT"], check=True)


def stop_forwarding(topology):
    with namespace.inside(topology.router_namespace):
        Path("/proc/sys/net/ipv4/ip_forward").write_text("0")


def shrink_buffers(topology):
    with namespace.inside(topology.namespace("a")):
        Path("/proc/sys/net/ipv4/tcp_rmem").write_text("4096 65536 100000")


def let_idle_windows_shrink(topology):
    with namespace.inside(topology.namespace("a")):
        Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("1")


def connect_regions_wrongly(topology):
    make_pair(topology, topology.ports("a")[0])
    with route_socket_in(topology.router_namespace) as link:
        link.link("set", index=index_of(link, "to-a"), state="down")
        link.link("set", index=index_of(link, "to-a"), ifname="other")
        link.link("add", ifname="to-a", kind="veth", peer={"ifname": "stray"})


@pytest.mark.parametrize(
    "harm",
    [
        delete_interface,
        take_interface_down,
        change_address,
        delete_route,
        delete_region,
        delete_router,
        leave_a_plain_file,
        flush_rules,
        open_the_policy,
        stop_forwarding,
        shrink_buffers,
        let_idle_windows_shrink,
        connect_regions_wrongly,
    ],
)
def test_create_repairs_what_is_half_there(topology, harm):
    regions.create(topology)
    harm(topology)
    assert not regions.exists(topology)
    assert regions.create(topology) != ()
    assert regions.exists(topology)


def test_remove_leaves_nothing_and_may_be_repeated(topology):
    regions.create(topology)
    assert set(regions.remove(topology)) == set(topology.namespaces)
    assert not set(topology.namespaces) & set(namespace.names())
    assert regions.remove(topology.deployment) == ()


def test_remove_takes_other_regions_of_the_deployment_too(topology):
    other = Topology.plan(deployment=topology.deployment, regions=("us-east", "eu"))
    regions.create(topology)
    regions.create(other)
    regions.remove(topology)
    assert namespaces_of(topology.deployment) == ()


def test_remove_leaves_another_deployment_with_a_longer_name(topology):
    other = Topology.plan(deployment=f"{topology.deployment}-x")
    try:
        regions.create(other)
        assert regions.remove(topology) == ()
        assert regions.exists(other)
    finally:
        regions.remove(other)


def test_remove_takes_a_namespace_that_was_never_marked(topology):
    netns.create(topology.namespace("a"))
    assert regions.remove(topology) == (topology.namespace("a"),)


def test_create_refuses_a_namespace_of_another_deployment(topology):
    netns.create(topology.namespace("a"))
    mark(topology.namespace("a"), "somebody")
    try:
        with pytest.raises(StateError, match="belongs to deployment somebody"):
            regions.create(topology)
        assert not regions.exists(topology)
    finally:
        mark(topology.namespace("a"), topology.deployment)


@pytest.mark.parametrize("how", ["run_in", "argv_in"])
def test_remove_refuses_while_a_process_lives_there(topology, how):
    regions.create(topology)
    region = topology.namespace("a")
    program = [sys.executable, "-c", "print('up', flush=True); input()"]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    if how == "run_in":
        process = namespace.run_in(region, program, **options)
    else:
        process = subprocess.Popen(argv_in(region, program), **options)
    with process:
        try:
            assert process.stdout.readline() == "up\n"
            assert namespace.pids_in(region) == (process.pid,)
            with pytest.raises(StateError, match=rf"{region}: {process.pid} \(python"):
                regions.remove(topology)
            assert regions.exists(topology)
        finally:
            process.communicate("\n")
    assert namespace.pids_in(region) == ()


def test_missing_namespace_is_told(topology):
    with pytest.raises(StateError, match="does not exist"):
        namespace.run_in(topology.namespace("a"), ["true"])
    with pytest.raises(StateError, match="does not exist"):
        wan_bytes(topology, "a")
    assert namespace.pids_in(topology.namespace("a")) == ()


def test_enter_reports_what_it_cannot_run(topology):
    regions.create(topology)
    argv = argv_in(topology.namespace("a"), ["/no/such/program"])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (127, 1)
    done = subprocess.run(argv_in("nowhere", ["true"]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "network namespace nowhere does not exist\n")


def test_counters_see_what_a_region_sends(topology):
    regions.create(topology)
    before = wan_bytes(topology, "a")
    with namespace.inside(topology.namespace("a")):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with contextlib.closing(sender):
        for _ in range(10):
            sender.sendto(bytes(1000), (topology.router_address("a"), 9))
    start = time.perf_counter()
    after = wan_bytes(topology, "a")
    assert time.perf_counter() - start < 0.020
    assert 10_000 < after["tx_bytes"] - before["tx_bytes"] < 12_000
    assert after["tx_packets"] - before["tx_packets"] in range(10, 14)  # and ARP


def test_rules_send_both_directions_to_their_queues(topology):
    regions.create(topology)
    with namespace.inside(topology.router_namespace):
        shown = subprocess.run(
            ["iptables", "-t", "mangle", "-S"], capture_output=True, text=True, check=True
        ).stdout
    assert "-i to-a -o to-b -j NFQUEUE --queue-num 0" in shown
    assert "-i to-b -o to-a -j NFQUEUE --queue-num 1" in shown
    assert "bypass" not in shown
    rules.set_kernel_path(topology, open_=True)
    rules.set_kernel_path(topology, open_=True)
    rules.set_kernel_path(topology, open_=False)
    rules.set_kernel_path(topology, open_=False)
    assert rules.queue_rules_stand(topology)
