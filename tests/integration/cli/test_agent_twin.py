"""A node agent runs an engine twin as it runs SGLang: start, adopt, restart, change of role."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from test_agent_life import Registry, until
from twin_engines import twin_config

from prfaas.config import NodeConfig
from prfaas.records import Role
from prfaas.twin_section import TwinSection
from prfaas_agent import role_switch
from prfaas_agent.agent import Agent
from prfaas_agent.engine import EngineFiles, find_running
from prfaas_agent.process import is_alive
from prfaas_cli.twin_fleet import ask_twin
from prfaas_cpu.models import default_models_dir


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeConfig:
    monkeypatch.setattr(role_switch, "GRACE_S", 0.05)
    twin = TwinSection(context_tokens=10_000, chunk_tokens=1024, dilation=0.01)
    return twin_config(
        "b-decode-0",
        Role.DECODE,
        model=default_models_dir() / "qwen3-next-tiny",
        state_dir=tmp_path,
        twin=twin,
        role_switch=True,
    )


@asynccontextmanager
async def agent_of(config: NodeConfig, registry: Registry) -> AsyncIterator[Agent]:
    agent = Agent(config, register=registry.register)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(agent.run())
        yield agent
        agent.stop()


async def test_a_twins_life_under_an_agent(config: NodeConfig, tmp_path: Path) -> None:
    registry, files = Registry(), EngineFiles(config)
    async with agent_of(config, registry) as agent:
        record = await registry.until_registered(1)
        assert (record.context_tokens, record.checkpoint_tokens) == (10_000, 1024)
        assert (record.stateful, record.max_running_requests) == (True, 20)
        assert len(record.layout) == 16
        engine = find_running(files)
        assert engine is not None
        change = await agent._change_role(Role.PREFILL, True, 10.0)
        assert (change.was, change.role, change.changed) == (Role.DECODE, Role.PREFILL, True)
        switched = registry.now[0]
        assert (switched.role, switched.layout) == (Role.PREFILL, record.layout)
        assert switched.bootstrap_port > 0
        known = len(registry.ever)
        crashed = await asyncio.to_thread(
            ask_twin, tmp_path / "b-decode-0.twin.sock", {"crash": True}
        )
        assert crashed == {"crashed": True}
        await until(lambda: len(registry.ever) > known and registry.now, limit_s=20)
        again = registry.now[0]
        assert (again.role, again.session != switched.session) == (Role.PREFILL, True)
        last = find_running(files)
    assert last is not None
    assert not is_alive(last.process)
    assert registry.now == []


async def test_a_twin_that_runs_is_adopted_by_the_next_agent(
    config: NodeConfig,
) -> None:
    files = EngineFiles(config)
    registry = Registry()
    agent = Agent(config, register=registry.register)
    task = asyncio.create_task(agent.run())
    first = await registry.until_registered(1)
    task.cancel()  # the agent dies without a word
    await asyncio.gather(task, return_exceptions=True)
    async with agent_of(config, registry):
        await until(lambda: registry.now, limit_s=20)
        assert registry.now[0].session == first.session
        engine = find_running(files)
    assert engine is not None
    assert not is_alive(engine.process), "an agent that is stopped ends its engine"
