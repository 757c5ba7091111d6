from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_cli.full_host import nspawn_argv
from prfaas_cli.host_plan import inventory, plan_hosts
from prfaas_cli.host_process import hierarchies, remove_cgroup
from prfaas_cli.mounts import _parsed
from prfaas_cli.place import Place
from prfaas_netem import Topology, parse_topology

PLACE = Place(Path("/state"), "lab")
FOUR = '[regions.a]\nhosts = ["prefill"]\n[regions.b]\nhosts = ["gateway", "prefill-1", "decode"]\n'


def hosts_of(text: str) -> object:
    topology = Topology.from_json(parse_topology(text).to_json() | {"deployment": "lab"})
    return plan_hosts(PLACE, topology, text)


def test_hosts_have_the_topologys_namespaces_and_names_of_their_own() -> None:
    hosts = hosts_of(FOUR)
    assert [(host.name, host.namespace, host.address) for host in hosts] == [
        ("a-prefill", "prfaas-lab-a", "10.213.1.2"),
        ("b-gateway", "prfaas-lab-b", "10.213.2.2"),
        ("b-prefill-1", "prfaas-lab-b.prefill-1", "10.213.2.3"),
        ("b-decode", "prfaas-lab-b.decode", "10.213.2.4"),
    ]
    assert len({host.cgroup for host in hosts}) == 4


def test_what_runs_from_tmp_is_lent_to_hosts_which_have_a_tmp_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = plan_hosts(PLACE, Topology.plan(deployment="lab"), "")[0]
    for prefix, private in (("/tmp/venv", "no"), ("/srv/venv", "yes")):
        monkeypatch.setattr("sys.prefix", prefix)
        monkeypatch.setattr("prfaas_cli.host_plan.find_model", lambda _: "/srv/models/tiny")
        assert (f"--bind-ro={prefix}" in nspawn_argv(host)) is (private == "no")
        assert inventory(PLACE, hosts_of(FOUR))["all"]["vars"]["prfaas_private_tmp"] == private


def test_groups_follow_names_and_three_hosts_become_members() -> None:
    children = inventory(PLACE, hosts_of(FOUR))["all"]["children"]
    assert {role: list(group["hosts"]) for role, group in children.items()} == {
        "prefill": ["a-prefill", "b-prefill-1"],
        "decode": ["b-decode"],
        "gateway": ["b-gateway"],
        "etcd": ["b-gateway", "b-prefill-1", "b-decode"],
    }
    variables = children["gateway"]["hosts"]["b-gateway"]
    assert variables["prfaas_region"] == "b"
    assert "prfaas-lab-b %h %p" in variables["ansible_ssh_common_args"]


def test_hosts_named_etcd_are_the_members() -> None:
    text = '[regions.a]\nhosts = ["prefill", "etcd"]\n[regions.b]\nhosts = ["gateway", "decode"]\n'
    children = inventory(PLACE, hosts_of(text))["all"]["children"]
    assert list(children["etcd"]["hosts"]) == ["a-etcd"]


def test_a_name_that_tells_no_role_is_refused() -> None:
    text = '[regions.a]\nhosts = ["gpu"]\n[regions.b]\nhosts = ["gateway"]\n'
    with pytest.raises(ConfigError, match="'gpu' of region a: its name must be its role"):
        inventory(PLACE, hosts_of(text))


def test_regions_without_hosts_have_one_of_their_name() -> None:
    assert [host.name for host in hosts_of("[regions.a]\n[regions.b]\n")] == ["a", "b"]


def test_hierarchies_are_those_with_processes(tmp_path: Path) -> None:
    for name in ("systemd", "unified", "memory"):
        (tmp_path / name).mkdir()
    (tmp_path / "systemd/cgroup.procs").touch()
    assert list(hierarchies(tmp_path)) == [tmp_path / "systemd"]


def test_a_control_group_that_is_not_there_is_no_error() -> None:
    remove_cgroup("prfaas-no-such-group")


def test_mount_points_with_odd_characters_are_read() -> None:
    line = "36 35 98:0 / /mnt/a\\040b\\303\\274 rw,noatime - ext3 /dev/root rw"
    assert list(_parsed(line)) == ["/mnt/a bü"]
