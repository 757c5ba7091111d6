"""The commands of docs/ansible.md, as they stand there: ansible over SSH on five full hosts."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deployment import leftovers, prfaasctl

from prfaas.records import RoutingPolicy
from prfaas_netem import inside
from prfaas_netem.namespace import names

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
HOSTS, NAME = f"h{os.getpid()}", f"m{os.getpid()}"
MODEL = "qwen3-next-tiny"
#: What may be left of a deployment: nothing. Prints one line for everything that is.
LEFT = (
    "ls -d /etc/prfaas /opt/prfaas /var/lib/prfaas* /etc/sysctl.d/60-prfaas.conf 2>/dev/null;"
    " find /etc/systemd/system -name 'prfaas*'; grep ^prfaas /etc/passwd;"
    " nft list table inet prfaas 2>/dev/null; pgrep -ax 'prfaasctl|etcd'; true"
)
#: What systemd thinks of our units: errors, and how exposed each is, from 0 to 10.
UNITS = (
    "systemd-analyze verify /etc/systemd/system/prfaas-*.service 2>&1;"
    " for unit in /etc/systemd/system/prfaas-*.service; do"
    " systemd-analyze security --no-pager ${unit##*/} | grep Overall; done"
)


def documented() -> list[list[str]]:
    text = (ROOT / "docs/ansible.md").read_text()
    return [shlex.split(line) for line in re.findall(r"^    prfaasctl (.*)$", text, re.MULTILINE)]


def asking() -> list[list[str]]:
    """The documented commands that ask the gateway, inside these hosts' network."""
    text = (ROOT / "docs/ansible.md").read_text().replace("prfaas-hosts-", f"prfaas-{HOSTS}-")
    text = text.replace(".venv/bin/prfaasctl", str(BIN / "prfaasctl"))
    return [shlex.split(line) for line in re.findall(r"^    (ip netns .*)$", text, re.MULTILINE)]


UP, LIST, INVENTORY, DEPLOY, PLAN, UPGRADE, BACKUP, RESTORE, DESTROY, DOWN = documented()


def run(words: list[str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a documented command with names and places of our own."""
    places = {word: str(folder / word) for word in ("build/inventory.json", "build/etcd.db")}
    own = places | {"machines": NAME}
    words = [own.get(word, word) for word in words]
    name = ["--name", HOSTS] if words[0] == "hosts" else []
    return prfaasctl(*words, *name, "--state-dir", str(folder), *more)


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(ROOT)
    try:
        for words in (UP, LIST, INVENTORY):
            done = run(words, tmp_path)
            assert done.returncode == 0, done.stderr
        path = tmp_path / "build/inventory.json"
        name_wheel(path, build_wheel(tmp_path / "wheel"))
        yield path
    finally:
        down = run(DOWN, tmp_path)
    assert down.returncode == 0, down.stderr
    assert leftovers(HOSTS, tmp_path / HOSTS) == []
    assert not list(Path("/sys/fs/cgroup").glob(f"*/prfaas-{HOSTS}-*"))


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(folder), str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def name_wheel(inventory: Path, wheel: Path) -> None:
    """Have every deploy install the same: the source tree may change meanwhile."""
    document = json.loads(inventory.read_text())
    document["all"]["vars"]["prfaas_wheel"] = str(wheel)
    inventory.write_text(json.dumps(document))


def on_host(inventory: Path, host: str, script: str) -> str:
    """Run a shell script on a host, over SSH as ansible does."""
    everything = json.loads(inventory.read_text())["all"]
    groups = everything["children"].values()
    variables = next(g["hosts"][host] for g in groups if g["hosts"].get(host))
    key = everything["vars"]["ansible_ssh_private_key_file"]
    options = shlex.split(variables["ansible_ssh_common_args"])
    command = ["ssh", *options, "-i", key, f"root@{variables['ansible_host']}", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(prompt_tokens: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Ask the gateway; return the headers and the answer."""
    prompt = [number % 500 for number in range(prompt_tokens)]
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 8}).encode()
    request = urllib.request.Request(
        "http://10.213.2.2:8080/v1/completions", body, {"content-type": "application/json"}
    )
    with inside(f"prfaas-{HOSTS}-wan"), urllib.request.urlopen(request, timeout=60) as answer:
        return {key.lower(): value for key, value in answer.headers.items()}, json.load(answer)


@contextmanager
def asked_all_the_time() -> Iterator[list[str]]:
    """Ask the gateway, long prompts and short ones in turn; gives all failures."""
    failures: list[str] = []
    asked: list[int] = []
    stop = threading.Event()

    def keep_asking() -> None:
        while not stop.wait(0.05):
            try:
                ask(25_000 if len(asked) % 2 else 9)
            except (OSError, ValueError) as error:
                why = error.read()[:300] if isinstance(error, urllib.error.HTTPError) else ""
                failures.append(f"request {len(asked)}: {error!r} {why!r}")
            asked.append(1)

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()
    assert len(asked) > 20


def another_release(inventory: Path, wheel: Path) -> None:
    """Have the hosts be upgraded to a release that differs in nothing but its name."""
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.comment = b"another"
    name_wheel(inventory, wheel)


def etcdctl(inventory: Path, words: str) -> str:
    """Run etcdctl on a member."""
    return on_host(
        inventory, "b-gateway", f"set -a; . /etc/prfaas/etcd/operator.env; etcdctl {words}"
    )


def upgraded_without_loss(inventory: Path, folder: Path) -> None:
    """Upgrade: the second host fails and ends it; once it can start again, the rest follows."""
    another_release(inventory, next((folder / "wheel").glob("*.whl")))
    before = on_host(inventory, "b-decode-0", "readlink /opt/prfaas/current")
    drop_in = "/etc/systemd/system/prfaas-node.service.d"
    broken = f"mkdir {drop_in}; printf '[Service]\\nExecStartPre=/bin/false\\n' > {drop_in}/no.conf"
    on_host(inventory, "b-prefill", f"{broken}; systemctl daemon-reload")
    with asked_all_the_time() as failures:
        failed = run(UPGRADE, folder, "--json")
        assert failed.returncode == 1, failed.stdout
        said = json.loads(failed.stdout)["error"]
        assert "host b-prefill: " in said, said
        assert "run the command again to go on" in said
        log = (folder / NAME / "logs/upgrade.log").read_text()
        assert "b-prefill: Start the node: " in log
        assert "it skips the hosts that are done and goes on with this one" in log
        assert on_host(inventory, "b-decode-0", "readlink /opt/prfaas/current") == before

        on_host(inventory, "b-prefill", f"rm -r {drop_in}; systemctl daemon-reload")
        done = run(UPGRADE, folder, "--json")
        assert done.returncode == 0, done.stderr[-3000:]
        # Its service tries again by itself: b-prefill may be up by now, with the new release.
        hosts = set(json.loads(done.stdout)["upgraded"]) - {"b-prefill"}
        assert hosts == {"b-decode-0", "b-decode-1", "b-gateway"}
    assert failures == []
    for host in ("a-prefill", "b-prefill", "b-decode-0", "b-decode-1", "b-gateway"):
        assert on_host(inventory, host, "readlink /opt/prfaas/current") != before, host

    again = run(UPGRADE, folder, "--json")
    assert again.returncode == 0, again.stderr[-3000:]
    document = json.loads(again.stdout)
    assert (document["outcome"], document["upgraded"]) == ("nothing to do", [])
    assert set(document["changed"].values()) == {0}


def threshold() -> int:
    with (
        inside(f"prfaas-{HOSTS}-wan"),
        urllib.request.urlopen("http://10.213.2.2:8080/admin/v1/policy", timeout=60) as answer,
    ):
        return int(json.load(answer)["threshold_tokens"])


def saved_and_brought_back(inventory: Path, folder: Path) -> None:
    """Save what etcd has, have all members lose it, and bring it back."""
    key = f"/prfaas/{NAME}/policy"
    policy = RoutingPolicy(threshold_tokens=777, version=1, tenants={"acme": "eu"}).to_json()
    etcdctl(inventory, f"put {key} {shlex.quote(policy)}")
    until(lambda: threshold() == 777, "the policy is not in force")
    saved = run(BACKUP, folder, "--json")
    assert saved.returncode == 0, saved.stderr[-3000:]
    assert json.loads(saved.stdout)["deployment"] == NAME
    assert stat.S_IMODE((folder / "build/etcd.db").stat().st_mode) == 0o600
    etcdctl(inventory, f"put {key} {shlex.quote(policy.replace('777', '778'))}")
    refused = run(RESTORE, folder)
    assert (refused.returncode, "give --yes" in refused.stderr) == (1, True), refused.stderr

    members = [member.removesuffix("-etcd") for member in etcdctl(inventory, MEMBERS).split()]
    assert len(members) == 3
    for member in members:
        on_host(inventory, member, "systemctl stop prfaas-etcd; rm -r /var/lib/prfaas-etcd/*")
    restored = run(RESTORE, folder, "--json")
    assert restored.returncode == 0, restored.stderr[-3000:]
    assert etcdctl(inventory, f"get --print-value-only {key}").strip() == policy
    until(lambda: threshold() == 777, "the policy is not back in force")
    headers, _ = ask(25_000)
    assert headers["x-prfaas-prefill"] == "a-prefill"


MEMBERS = "member list -w simple | cut -d, -f3"


def until(what: Callable[[], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(0.2)


def test_five_hosts_over_ssh(inventory: Path, tmp_path: Path) -> None:
    twins = ("--scale", "100000", "--dilation", "0.05")
    first = run(DEPLOY, tmp_path, *twins, "--json")
    assert first.returncode == 0, first.stderr[-3000:]
    document = json.loads(first.stdout)
    assert document["outcome"] == "deployed"
    assert document["url"] == "http://10.213.2.2:8080"

    headers, answer = ask(9)
    assert (headers["x-prfaas-route"], headers["x-prfaas-prefill"]) == ("local", "b-prefill")
    assert answer["usage"]["completion_tokens"] == 8
    headers, answer = ask(25_000)
    assert (headers["x-prfaas-route"], headers["x-prfaas-prefill"]) == ("offload", "a-prefill")
    assert answer["usage"]["completion_tokens"] == 8
    assert [Path(words[4]).name for words in asking()] == ["curl", "prfaasctl"]
    for words in asking():
        asked = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert asked.returncode == 0, asked.stderr
        assert MODEL in asked.stdout or "route     local" in asked.stdout, asked.stdout

    units = on_host(inventory, "b-gateway", UNITS).splitlines()
    exposures = [float(re.findall(r"\d+\.\d+", line)[0]) for line in units if "Overall" in line]
    assert len(exposures) == len(units) == 4, units
    assert max(exposures) < 2.5

    second = run(DEPLOY, tmp_path, *twins, "--json")
    assert second.returncode == 0, second.stderr[-3000:]
    assert json.loads(second.stdout)["changed"] == dict.fromkeys(document["changed"], 0)

    planned = run(PLAN, tmp_path, *twins)
    assert planned.returncode == 0, planned.stderr[-3000:]
    changes = [line for line in planned.stdout.splitlines() if line.startswith(("+", "-"))]
    assert changes[-2:] == ["-threshold_tokens = 19400", "+threshold_tokens = 5000"], planned.stdout
    assert "threshold_tokens = 19400" in on_host(
        inventory, "b-gateway", "cat /etc/prfaas/gateway.toml"
    )

    upgraded_without_loss(inventory, tmp_path)
    saved_and_brought_back(inventory, tmp_path)

    log = "".join(path.read_text() for path in (tmp_path / NAME / "logs").iterdir())
    state = (tmp_path / NAME / "deployment.json").read_text()
    assert "PRIVATE KEY" not in log + state + first.stderr + second.stderr

    destroyed = run(DESTROY, tmp_path)
    assert destroyed.returncode == 0, destroyed.stderr[-3000:]
    assert not (tmp_path / NAME).exists()
    for host in ("a-prefill", "b-gateway", "b-decode-0"):
        assert on_host(inventory, host, LEFT) == "", host


def test_hosts_are_made_once_and_listed(tmp_path: Path) -> None:
    name = f"l{os.getpid()}"
    flags = ["--name", name, "--state-dir", str(tmp_path), "--json"]
    topology = tmp_path / "two.toml"
    topology.write_text('[regions.a]\nhosts = ["prefill"]\n[regions.b]\nhosts = ["decode"]\n')
    try:
        for outcome in ("made", "nothing to do"):
            up = prfaasctl("hosts", "up", "--topology", str(topology), *flags)
            assert up.returncode == 0, up.stderr
            assert json.loads(up.stdout)["outcome"] == outcome
        listed = json.loads(prfaasctl("hosts", "list", *flags).stdout)["hosts"]
        assert [(host["host"], host["state"]) for host in listed] == [
            ("a-prefill", "up"),
            ("b-decode", "up"),
        ]
    finally:
        down = prfaasctl("hosts", "down", *flags)
    assert json.loads(down.stdout)["outcome"] == "removed"
    assert [found for found in names() if name in found] == []
