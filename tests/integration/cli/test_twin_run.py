"""`prfaasctl twin run`: many twins in one process, each listed in etcd."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from etcd_server import EtcdServer
from twin_engines import twin_config

from prfaas.config import EtcdSection, render_node_config
from prfaas.errors import StateError
from prfaas.records import NodeRecord, Role
from prfaas.twin_section import TwinSection
from prfaas_agent.registration import read_nodes
from prfaas_coord import EtcdClient
from prfaas_cpu.models import default_models_dir

COUNT = 8
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def run_twins(config: Path, output: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "prfaas_cli", "twin", "run"]
    command += ["--config", str(config), "--count", str(COUNT)]
    with output.open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


async def test_many_twins_are_listed_and_taken_off(tmp_path: Path) -> None:
    etcd = EtcdServer(tmp_path / "etcd")
    await etcd.start()
    config = replace(
        twin_config(
            "p",
            Role.PREFILL,
            model=default_models_dir() / "qwen3-tiny",
            state_dir=tmp_path,
            twin=TwinSection(dilation=0.01),
        ),
        etcd=EtcdSection(endpoints=(etcd.endpoint,)),
    )
    (tmp_path / "p.toml").write_text(render_node_config(config))
    process = run_twins(tmp_path / "p.toml", tmp_path / "log")
    try:
        async with EtcdClient.of(config) as client:

            async def nodes() -> list[NodeRecord]:
                try:
                    return await read_nodes(client, config.node.deployment)
                except StateError:
                    return []

            async with asyncio.timeout(30):
                while len(found := await nodes()) < COUNT:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    await asyncio.sleep(0.1)
                assert {node.name for node in found} == {f"p-{i}" for i in range(COUNT)}
                assert len({node.layout for node in found}) == 1
                assert len({node.url for node in found}) == COUNT
                os.kill(process.pid, signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 20) == 0
                assert await nodes() == []
    finally:
        process.kill()
        process.wait()
        etcd.kill()


def test_a_count_that_cannot_be_is_refused_in_one_line(tmp_path: Path, prfaasctl: Run) -> None:
    config = twin_config("p", Role.PREFILL, model=tmp_path, state_dir=tmp_path)
    (tmp_path / "p.toml").write_text(render_node_config(config))
    done = prfaasctl("twin", "run", "--config", str(tmp_path / "p.toml"), "--count", "0")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["prfaasctl: error: --count 0: allowed is 1 to 1000"]


def test_a_fault_for_nobody_is_refused_in_one_line(prfaasctl: Run) -> None:
    done = prfaasctl("twin", "fault", "b-decode-0", "--stall", "3")
    assert done.returncode == 1
    assert "no twin serves" in done.stderr


def test_node_check_of_a_twin_looks_at_its_profile_and_not_at_sglang(
    tmp_path: Path, prfaasctl: Run
) -> None:
    model = default_models_dir() / "qwen3-tiny"
    for profile, ok in (("paper-1t-h20", True), ("paper-1t-h200", False)):
        twin = TwinSection(profile=profile)
        config = twin_config("d", Role.DECODE, model=model, state_dir=tmp_path, twin=twin)
        (tmp_path / "d.toml").write_text(render_node_config(config))
        done = prfaasctl("node", "check", "--config", str(tmp_path / "d.toml"), "--json")
        checks = {item["name"]: item for item in json.loads(done.stdout)["checks"]}
        assert checks["twin"]["ok"] is ok
        assert "sglang" not in checks
        assert checks["port"]["ok"] is True
    assert "only prefills" in checks["twin"]["detail"]
