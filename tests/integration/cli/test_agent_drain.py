"""A node agent drains its node, as `prfaasctl node drain` asks it to, and offers it again."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from ports import free_port
from test_agent_life import Registry, agent_of, until

from prfaas.config import EngineSection, NodeConfig, NodeSection, render_node_config
from prfaas.records import NodeRecord, Role
from prfaas_agent import drain
from prfaas_agent.engine import EngineFiles

Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeConfig:
    monkeypatch.setattr(drain, "GRACE_S", 0.05)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "tokenizer.json").write_text("{}")
    engine = EngineSection(str(model), device="cpu", start_timeout_s=30)
    node = NodeSection("b-decode-0", Role.DECODE, "b", port=free_port(), state_dir=str(tmp_path))
    config = NodeConfig(node=node, engine=engine)
    (tmp_path / "node.toml").write_text(render_node_config(config))
    return config


class World:
    """An agent, and who is registered: its node and, until it is taken away, another decode."""

    def __init__(self, config: NodeConfig, registry: Registry, prfaasctl: Run) -> None:
        self.registry = registry
        self.busy = EngineFiles(config).home / "busy"
        self._config = Path(config.node.state_dir) / "node.toml"
        self._prfaasctl = prfaasctl

    async def node(self, verb: str, *args: str) -> tuple[int, dict[str, Any]]:
        words = ["node", verb, "b-decode-0", *args, "--json", "--config", str(self._config)]
        done = await asyncio.to_thread(self._prfaasctl, *words)
        return done.returncode, dict(json.loads(done.stdout))

    @property
    def record(self) -> NodeRecord:
        return next(record for record in self.registry.now if record.name == "b-decode-0")


@pytest.fixture
async def world(config: NodeConfig, prfaasctl: Run) -> AsyncIterator[World]:
    registry = Registry()
    async with agent_of(config, registry):
        record = await registry.until_registered(1)
        registry.now.append(replace(record, name="b-decode-1", session="other"))
        yield World(config, registry, prfaasctl)


async def test_a_node_is_drained_when_it_is_idle_and_offered_again(world: World) -> None:
    before = world.record
    world.busy.write_text("true")
    draining = asyncio.create_task(world.node("drain"))
    await until(lambda: world.record.draining, limit_s=20)
    await asyncio.wait({draining}, timeout=1.0)
    assert not draining.done()
    world.busy.write_text("false")
    code, said = await draining
    assert (code, said["draining"], said["changed"]) == (0, True, True)
    assert world.record == replace(before, draining=True)
    assert (await world.node("drain"))[1]["changed"] is False
    code, said = await world.node("role", "prefill")
    assert (code, "undrain it first" in said["error"]) == (1, True)
    assert (await world.node("undrain"))[1] == said_of(changed=True)
    assert world.record == before
    assert (await world.node("undrain"))[1] == said_of(changed=False)


def said_of(*, changed: bool) -> dict[str, Any]:
    return {"name": "b-decode-0", "draining": False, "changed": changed, "drained_s": 0.0}


async def test_a_node_that_stays_busy_is_offered_again(world: World) -> None:
    before = world.record
    world.busy.write_text("true")
    code, said = await world.node("drain", "--timeout", "0.1")
    assert (code, "still busy" in said["error"]) == (1, True)
    assert world.record == before


async def test_the_last_decode_of_a_region_is_not_drained_unless_forced(world: World) -> None:
    world.registry.now = [world.record]
    code, said = await world.node("drain")
    assert code == 1
    assert "is the only decode node of region b that is not draining" in said["error"]
    assert not any(record.draining for record in world.registry.ever)
    assert (await world.node("drain", "--force"))[0] == 0
    assert world.record.draining
