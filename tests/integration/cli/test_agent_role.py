"""A node agent changes its node's role, as `prfaasctl node role` asks it to."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from test_agent_life import Registry, agent_of, launch, running, until

from prfaas.config import EngineSection, NodeConfig, NodeSection, render_node_config
from prfaas.records import NodeRecord, Role
from prfaas_agent import agent as agent_module
from prfaas_agent import role_switch
from prfaas_agent.agent import Agent
from prfaas_agent.engine import EngineFiles
from prfaas_agent.process import is_alive

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeConfig:
    monkeypatch.setattr(role_switch, "GRACE_S", 0.05)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "tokenizer.json").write_text("{}")
    ports = [free_port(), free_port()]
    engine = EngineSection(
        str(model),
        device="cpu",
        start_timeout_s=30,
        bootstrap_port=ports[1],
        role_switch=True,
        decode_cache=True,
    )
    node = NodeSection("b-decode-0", Role.DECODE, "b", port=ports[0], state_dir=str(tmp_path))
    config = NodeConfig(node=node, engine=engine)
    (tmp_path / "node.toml").write_text(render_node_config(config))
    return config


class World:
    """An agent, who is registered, and what its engine is told to answer."""

    def __init__(self, config: NodeConfig, registry: Registry, prfaasctl: Run) -> None:
        self.registry = registry
        self.files = EngineFiles(config)
        self._state_dir = Path(config.node.state_dir)
        self._prfaasctl = prfaasctl

    async def role(self, role: str, *args: str) -> tuple[int, dict[str, Any]]:
        command = ["node", "role", "b-decode-0", role, "--json", *args]
        command += ["--config", str(self._state_dir / "node.toml")]
        done = await asyncio.to_thread(self._prfaasctl, *command)
        return done.returncode, dict(json.loads(done.stdout))

    def answer(self, name: str, value: object) -> None:
        """Tell the dummy engine what to say to a change of role."""
        (self.files.home / name).write_text(json.dumps(value))

    @property
    def record(self) -> NodeRecord:
        return next(record for record in self.registry.now if record.name == "b-decode-0")


@pytest.fixture
async def world(config: NodeConfig, prfaasctl: Run) -> AsyncIterator[World]:
    registry = Registry()
    async with agent_of(config, registry):
        await registry.until_registered(1)
        yield World(config, registry, prfaasctl)


def another(world: World) -> NodeRecord:
    return replace(world.record, name="b-decode-1", session="other")


async def test_a_node_drains_switches_and_is_offered_in_its_new_role(world: World) -> None:
    before = world.record
    world.registry.now.append(another(world))
    code, said = await world.role("prefill")
    assert (code, said["was"], said["role"], said["changed"]) == (0, "decode", "prefill", True)
    offered, draining, after = world.registry.ever
    assert (offered, draining) == (before, replace(before, draining=True))
    assert after == world.record
    assert (after.role, after.draining, after.session != before.session) == (
        Role.PREFILL,
        False,
        True,
    )
    assert after.bootstrap_port > 0
    engine = running(world.files)
    assert engine.record == after
    code, said = await world.role("prefill")
    assert (code, said["changed"]) == (0, False)
    assert running(world.files) == engine
    assert len(world.registry.ever) == 3


async def test_the_last_decode_of_a_region_stays_unless_forced(world: World) -> None:
    world.registry.now.append(replace(another(world), draining=True))
    world.registry.now.append(replace(another(world), name="a-decode-0", region="a"))
    code, said = await world.role("prefill")
    assert code == 1
    assert "is the only decode node of region b" in said["problems"][0]
    assert "--force" in said["problems"][0]
    assert len(world.registry.ever) == 1
    code, _ = await world.role("prefill", "--force")
    assert (code, world.record.role) == (0, Role.PREFILL)


async def test_a_node_that_stays_busy_is_offered_again_as_before(world: World) -> None:
    world.answer("busy", True)
    before = world.record
    code, said = await world.role("prefill", "--force", "--timeout", "0.3")
    assert code == 1
    assert "still busy" in said["problems"][0]
    assert [record.draining for record in world.registry.ever] == [False, True, False]
    assert world.record == before
    world.answer("busy", False)
    code, _ = await world.role("prefill", "--force")
    assert code == 0


async def test_requests_that_end_in_time_are_waited_for(world: World) -> None:
    world.answer("busy", True)
    change = asyncio.ensure_future(world.role("prefill", "--force"))
    await until(lambda: world.record.draining, limit_s=20)
    world.answer("busy", False)
    code, said = await change
    assert (code, said["changed"]) == (0, True)


async def test_an_engine_that_breaks_starts_again_in_the_new_role(world: World) -> None:
    world.answer("breaks", True)
    old = running(world.files).process
    code, said = await world.role("prefill", "--force")
    assert code == 1
    assert "starts again as prefill" in said["problems"][0]
    await until(lambda: [one.role for one in world.registry.now] == ["prefill"], limit_s=20)
    assert not is_alive(old)
    assert "prefill" in running(world.files).arguments


async def test_a_role_outlives_the_agent_and_its_engine(config: NodeConfig, prfaasctl: Run) -> None:
    registry = Registry()
    agent = Agent(config, register=registry.register, fork_launch=launch)
    task = asyncio.ensure_future(agent.run())
    await registry.until_registered(1)
    world = World(config, registry, prfaasctl)
    code, _ = await world.role("prefill", "--force")
    assert code == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    engine = running(world.files)
    async with agent_of(config, registry):
        # Adopted, as what it is.
        found = await registry.until_registered(4)
        assert engine.record is not None
        assert found == replace(engine.record, agent_url=found.agent_url)
        assert running(world.files).process == engine.process
    async with agent_of(config, registry):
        assert (await registry.until_registered(5)).role is Role.PREFILL
        assert running(world.files).process != engine.process


async def test_a_node_that_may_not_change_its_role_says_what_to_set(
    config: NodeConfig, prfaasctl: Run
) -> None:
    assert config.engine is not None
    fixed = replace(config, engine=replace(config.engine, role_switch=False))
    registry = Registry()
    async with agent_of(fixed, registry):
        await registry.until_registered(1)
        world = World(fixed, registry, prfaasctl)
        code, said = await world.role("prefill", "--force")
        assert (code, "engine.role_switch" in said["problems"][0]) == (1, True)
        code, said = await world.role("prefil")
        assert (code, said["problems"]) == (2, ["role 'prefil': allowed: prefill, decode"])


async def test_a_node_takes_the_role_that_the_plan_wants(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "WISH_LOOK_S", 0.05)
    monkeypatch.setattr(agent_module, "WISH_RETRY_S", 0.05)
    world.registry.wishes["b-decode-0"] = Role.PREFILL
    await asyncio.sleep(1.5)  # it looks, and is the last decode of its region: it stays
    assert world.record.role is Role.DECODE
    assert not world.record.draining
    world.registry.now.append(another(world))
    await until(lambda: world.record.role is Role.PREFILL, limit_s=20)
    assert not world.record.draining
    engine = running(world.files)
    assert engine.record == world.record
