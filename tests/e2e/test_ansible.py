"""The commands of docs/ansible.md, as they stand there: ansible over SSH on four full hosts."""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment import leftovers, prfaasctl

from prfaas_netem import inside
from prfaas_netem.namespace import names

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(400)]

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


UP, LIST, INVENTORY, DEPLOY, PLAN, DESTROY, DOWN = documented()


def run(words: list[str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a documented command with names and places of our own."""
    own = {"build/inventory.json": str(folder / "build/inventory.json"), "machines": NAME}
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


def test_four_hosts_over_ssh(inventory: Path, tmp_path: Path) -> None:
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

    log = (tmp_path / NAME / "logs/ansible.log").read_text()
    state = (tmp_path / NAME / "deployment.json").read_text()
    assert "PRIVATE KEY" not in log + state + first.stderr + second.stderr

    destroyed = run(DESTROY, tmp_path)
    assert destroyed.returncode == 0, destroyed.stderr[-3000:]
    assert not (tmp_path / NAME).exists()
    for host in ("a-prefill", "b-gateway", "b-decode"):
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
