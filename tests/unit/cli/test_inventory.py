import json
from pathlib import Path

import pytest

from prfaas.errors import ConfigError
from prfaas_cli.ansible_run import Played
from prfaas_cli.deploy import check_target
from prfaas_cli.inventory import api_url, hosts_of, inventory_problems, names_package


def document(**changes: object) -> dict[str, object]:
    """What `ansible-inventory --list` gives of four hosts."""
    groups = {
        "prefill": {"hosts": ["a-prefill"]},
        "decode": {"hosts": ["b-decode"]},
        "gateway": {"hosts": ["b-gateway"]},
        "etcd": {"hosts": ["b-gateway"]},
    }
    hosts = {
        name: {"prfaas_region": name[0], "prfaas_address": f"10.0.0.{number}"}
        for number, name in enumerate(("a-prefill", "b-decode", "b-gateway"), start=1)
    }
    return groups | {"_meta": {"hostvars": hosts}} | changes


def test_a_whole_inventory_has_no_problems() -> None:
    hosts = hosts_of(document())
    assert list(inventory_problems(hosts, ("a", "b"))) == []
    assert api_url(hosts) == "http://10.0.0.3:8080"
    assert hosts[2].groups == ("gateway", "etcd")


def test_all_problems_are_told_at_once() -> None:
    broken = document(decode={"hosts": []}, gateway={"hosts": ["a-prefill", "b-gateway"]}, etcd={})
    broken["_meta"]["hostvars"]["a-prefill"] = {"prfaas_region": "c"}  # type: ignore[index]
    assert list(inventory_problems(hosts_of(broken), ("a", "b"))) == [
        "group decode: no host; allowed: one or more",
        "group etcd: 0 hosts; allowed: 1, 3 or 5",
        "host a-prefill: in the groups prefill, gateway; allowed: one of them",
        "host a-prefill: prfaas_address is missing",
        "--regions a,b: the inventory has hosts in c too",
        "--regions: the inventory has no host in a",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prfaas_region": 'a"\n[x]'}, "prfaas_region 'a\"\\n[x]': allowed"),
        ({"prfaas_region": "../a"}, "prfaas_region '../a': allowed"),
        ({"prfaas_address": "10.0.0.1; reboot"}, "prfaas_address '10.0.0.1; reboot': allowed"),
        ({"prfaas_address": "fe80::1"}, "prfaas_address 'fe80::1': allowed: an IPv4 address"),
        ({"prfaas_gateway_port": "http"}, "prfaas_gateway_port: allowed: 1 to 65535"),
        ({"prfaas_gateway_port": 70000}, "prfaas_gateway_port: allowed: 1 to 65535"),
    ],
)
def test_words_that_would_end_up_in_files_of_a_host_are_checked(
    changes: dict[str, object], problem: str
) -> None:
    broken = document()
    broken["_meta"]["hostvars"]["a-prefill"].update(changes)  # type: ignore[index]
    found = list(inventory_problems(hosts_of(broken), ("a", "b")))
    assert f"host a-prefill: {problem}" in "\n".join(found)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "A", "-" * 41, "x.example.com"])
def test_names_of_hosts_are_checked(name: str) -> None:
    broken = document(prefill={"hosts": [name]})
    broken["_meta"]["hostvars"][name] = {"prfaas_region": "a", "prfaas_address": "x"}  # type: ignore[index]
    found = list(inventory_problems(hosts_of(broken), ("a", "b")))
    assert found == [f"host {name!r}: allowed names: 1 to 40 lowercase letters, digits and dashes"]


def test_an_inventory_may_name_the_package() -> None:
    assert not names_package(document())
    assert names_package({"_meta": {"hostvars": {"h": {"prfaas_wheel": "/w.whl"}}}})


@pytest.mark.parametrize(
    ("target", "inventory", "plan", "problem"),
    [
        ("moon", None, False, "--target moon"),
        ("inventory", None, False, "needs --inventory FILE and --regions"),
        ("emulated", Path("x"), False, "allowed with --target inventory"),
        ("emulated", None, True, "allowed with --target inventory"),
    ],
)
def test_options_of_targets(target: str, inventory: Path | None, plan: bool, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_target(target, inventory, "a,b", plan=plan)


def test_what_a_playbook_says_is_understood() -> None:
    played = Played()
    result = {"changed": True, "msg": "non-zero return code", "stderr": "first\nsysctl: denied"}
    lines = [
        "TASK [etcd : Start the member] *****",
        "RUNNING HANDLER [common : Apply kernel settings] ***",
        f"fatal: [b-gateway]: FAILED! => {json.dumps(result)}",
        'fatal: [b-decode]: UNREACHABLE! => {"msg": "no route", "unreachable": true}',
        "b-gateway : ok=5    changed=3    unreachable=0    failed=1    skipped=0",
    ]
    assert [played.take(line) for line in lines][:2] == [
        "etcd: Start the member",
        "common: Apply kernel settings",
    ]
    assert played.failures == [
        "host b-gateway: common: Apply kernel settings: sysctl: denied",
        "host b-decode: common: Apply kernel settings: no route",
    ]
    assert played.changed == {"b-gateway": 3}
