"""etcd's own command: what it is run with, and what comes of one that fails or hangs."""

from pathlib import Path

import pytest

from prfaas.errors import StateError
from prfaas_cli import etcd_tool


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "etcdctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr("prfaas_cli.preflight.find_program", lambda name: str(folder / name))


def test_a_tool_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(etcd_tool, "_TIMEOUT_S", 0.3)
    with pytest.raises(StateError, match=r"etcdctl snapshot save: not done within 0\.3 s"):
        etcd_tool.etcd_tool(["snapshot", "save", "x"], {})


def test_a_failure_is_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo first >&2; echo 'no space left' >&2; exit 1")
    with pytest.raises(StateError, match="etcdctl snapshot save: no space left"):
        etcd_tool.etcd_tool(["snapshot", "save", "x"], {})


def test_settings_of_the_caller_are_not_etcds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCDCTL_USER", "root:secret")
    stand_in(tmp_path, monkeypatch, "env | grep ^ETCDCTL_ | sort")
    said = etcd_tool.etcd_tool(["x"], {"ETCDCTL_ENDPOINTS": "here"})
    assert said.splitlines() == ["ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=here"]
