"""Nodes and etcd as `node check` sees them, and a node that does not fit as registration does."""

import asyncio
import json
import socket
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdServer
from ports import free_port

from prfaas.config import (
    EtcdSection,
    GatewaySection,
    NodeConfig,
    NodeSection,
    render_node_config,
)
from prfaas.errors import StateError
from prfaas.pairing import layout_problem
from prfaas.records import NodeRecord, Role
from prfaas_agent.registration import read_nodes, registered
from prfaas_coord import EtcdClient

NODE = NodeRecord(
    "a-prefill-0", Role.PREFILL, "a", "http://127.0.0.1:1", "s", model_id="m", layout="1f"
)


@pytest.fixture
def config(shared_etcd: EtcdServer, tmp_path: Path) -> NodeConfig:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    node = NodeSection("g", Role.GATEWAY, "b", deployment=uuid.uuid4().hex, port=free_port())
    etcd = EtcdSection(endpoints=(shared_etcd.endpoint,))
    return NodeConfig(node=node, etcd=etcd, gateway=GatewaySection(str(tmp_path)))


async def check(config: NodeConfig, directory: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    file = directory / "node.toml"
    file.write_text(render_node_config(config))
    command = [sys.executable, "-m", "prfaas_cli", "node", "check", "--json", "--config", str(file)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    findings = json.loads(done.stdout)["checks"]
    return done.returncode, {finding["name"]: finding for finding in findings}


async def test_all_is_well_alone_and_with_a_peer_that_answers(
    config: NodeConfig, tmp_path: Path
) -> None:
    code, found = await check(config, tmp_path)
    assert code == 0, found
    assert set(found) == {"sglang", "model", "security", "api", "etcd", "port"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with registered(config, replace(NODE, url=url)):
            await until_registered(config, 1)
            code, found = await check(config, tmp_path)
    assert code == 0, found
    assert found["peers"]["detail"] == "all answer: a-prefill-0"
    assert found["layout"]["ok"]


async def until_registered(config: NodeConfig, count: int) -> None:
    async with EtcdClient.of(config) as client, asyncio.timeout(10):
        while len(await read_nodes(client, config.node.deployment)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_what_is_wrong_is_named_with_what_to_do(config: NodeConfig, tmp_path: Path) -> None:
    closed = free_port()
    away = replace(NODE, bootstrap_host="127.0.0.1", bootstrap_port=closed)
    async with registered(config, away):
        await until_registered(config, 1)
        code, found = await check(config, tmp_path)
    assert code == 1
    assert not found["a-prefill-0 HTTP"]["ok"]
    assert f"127.0.0.1:{closed}" in found["a-prefill-0 bootstrap"]["detail"]
    assert "port open from 127.0.0.1?" in found["a-prefill-0 bootstrap"]["detail"]
    elsewhere = replace(config, etcd=EtcdSection(endpoints=(f"127.0.0.1:{closed}",)))
    code, found = await check(elsewhere, tmp_path)
    assert code == 1
    assert "start etcd or correct etcd.endpoints" in found["etcd"]["detail"]


async def test_a_node_of_another_layout_is_not_registered(config: NodeConfig) -> None:
    other = replace(NODE, name="b-decode-0", role=Role.DECODE, region="b")
    async with registered(config, NODE):
        await until_registered(config, 1)
        for wrong, says in (
            (replace(other, layout="3c"), "as layout 3c, a-prefill-0 as 1f"),
            (replace(other, tp_size=2), "at TP 2, a-prefill-0 at TP 1"),
        ):
            with pytest.raises(StateError, match=says):
                async with registered(config, wrong):
                    pass
        async with registered(config, other), registered(config, replace(NODE, session="t")):
            await until_registered(config, 2)


@pytest.mark.parametrize(
    "node", [replace(NODE, layout=""), replace(NODE, model_id="other", layout="3c", tp_size=4)]
)
def test_only_nodes_of_one_model_whose_layouts_are_known_are_compared(node: NodeRecord) -> None:
    others = [NODE, replace(NODE, name="x", layout="", tp_size=8)]
    assert layout_problem(replace(node, name="y"), others) is None
