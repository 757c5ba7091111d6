"""A backup of an emulated deployment's etcd, inside TLS, and its way back."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import leftovers, prfaasctl
from ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(120)]

NAME = f"k{os.getpid()}"


@pytest.fixture
def flags(tmp_path: Path) -> Iterator[list[str]]:
    flags = ["--name", NAME, "--state-dir", str(tmp_path), "--json"]
    options = ["--engine", "twin", "--scale", "100000", "--dilation", "0.05", "--security", "mtls"]
    try:
        done = prfaasctl("deploy", "--regions", "a,b", *options, "--port", str(free_port()), *flags)
        assert done.returncode == 0, done.stderr
        yield flags
    finally:
        prfaasctl("destroy", *flags)
    assert leftovers(NAME, tmp_path / NAME) == []


def threshold(flags: list[str]) -> int:
    shown = prfaasctl("schedule", "show", *flags)
    assert shown.returncode == 0, shown.stderr
    return int(json.loads(shown.stdout)["plan"]["threshold_tokens"])


def set_threshold(tokens: int, flags: list[str]) -> None:
    done = prfaasctl("schedule", "apply", "--threshold", str(tokens), *flags)
    assert done.returncode == 0, done.stderr


def test_a_plan_is_saved_and_brought_back(flags: list[str], tmp_path: Path) -> None:
    set_threshold(777, flags)
    saved = prfaasctl("backup", str(tmp_path), *flags)
    assert saved.returncode == 0, saved.stderr
    file = json.loads(saved.stdout)["file"]
    assert Path(file).name.startswith(f"{NAME}-")
    again = prfaasctl("backup", file, *flags)
    assert (again.returncode, "overwrites nothing" in again.stderr) == (1, True)

    set_threshold(778, flags)
    refused = prfaasctl("restore", file, *flags)
    assert (refused.returncode, "what was written since" in refused.stderr) == (1, True)
    assert threshold(flags) == 778
    restored = prfaasctl("restore", file, "--yes", *flags)
    assert restored.returncode == 0, restored.stderr
    assert threshold(flags) == 777
    deadline_s = time.monotonic() + 60
    while prfaasctl("status", *flags).returncode:
        assert time.monotonic() < deadline_s, "the nodes are not back"
    assert not list(tmp_path.glob(".prfaas-backup-*"))
