import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from prfaas.config import EngineSection, NodeConfig, NodeSection
from prfaas.errors import PreflightError, PrfaasError
from prfaas.records import NodeRecord, Role
from prfaas_agent import agent as agents
from prfaas_agent import engine as engines
from prfaas_agent.agent import Agent
from prfaas_agent.engine import Engine, EngineFiles
from prfaas_agent.process import command_line, is_alive, session_members

DUMMY = Path(__file__).with_name("dummy_engine.py")


def launch(arguments: Sequence[str], environment: Mapping[str, str], log: Path, home: Path) -> int:
    """Start the dummy engine as a fork server would: as a session of its own."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(DUMMY), *arguments],
            cwd=home,
            env=dict(environment),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0
    return process.pid


async def until(what: Callable[[], object], *, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while not what():  # noqa: ASYNC110 - what is waited for is another process
            await asyncio.sleep(0.02)


@dataclass
class Registry:
    """Stands for etcd: who is registered now, and all that ever were."""

    now: list[NodeRecord] = field(default_factory=list)
    ever: list[NodeRecord] = field(default_factory=list)
    wishes: dict[str, Role] = field(default_factory=dict)

    @asynccontextmanager
    async def register(self, record: NodeRecord) -> AsyncIterator["Entry"]:
        self.now.append(record)
        self.ever.append(record)
        entry = Entry(self, record)
        try:
            yield entry
        finally:
            self.now.remove(entry.record)

    async def until_registered(self, times: int) -> NodeRecord:
        await until(lambda: len(self.ever) >= times and self.now, limit_s=20)
        return self.now[0]


@dataclass
class Entry:
    """One node's place in the registry."""

    registry: Registry
    record: NodeRecord

    async def publish(self, record: NodeRecord) -> None:
        self.registry.now.remove(self.record)
        self.registry.now.append(record)
        self.registry.ever.append(record)
        self.record = record

    async def wished_role(self) -> Role | None:
        return self.registry.wishes.get(self.record.name)

    async def nodes(self) -> list[NodeRecord]:
        return list(self.registry.now)


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"layer_types": ["linear_attention"]}')
    (model / "tokenizer.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    node = NodeSection("b-decode-0", Role.DECODE, "b", port=port, state_dir=str(tmp_path))
    return NodeConfig(node=node, engine=EngineSection(str(model), device="cpu", start_timeout_s=30))


@pytest.fixture
def files(config: NodeConfig) -> EngineFiles:
    return EngineFiles(config)


def running(files: EngineFiles) -> Engine:
    engine = engines.find_running(files)
    assert engine is not None
    return engine


@asynccontextmanager
async def agent_of(config: NodeConfig, registry: Registry) -> AsyncIterator[Agent]:
    """Run an agent; at the end tell it to stop, as SIGTERM does."""
    agent = Agent(config, register=registry.register, fork_launch=launch)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(agent.run())
        yield agent
        agent.stop()


async def test_an_engine_is_started_registered_and_stopped(
    config: NodeConfig, files: EngineFiles
) -> None:
    registry = Registry()
    async with agent_of(config, registry):
        record = await registry.until_registered(1)
        engine = running(files)
        assert record.session == engine.session
        assert (record.context_tokens, record.checkpoint_tokens) == (2048, 512)
    assert registry.now == []
    assert not is_alive(engine.process)
    assert not files.record.exists()


async def test_a_dead_engine_is_deregistered_and_comes_back_as_a_new_session(
    config: NodeConfig, files: EngineFiles
) -> None:
    registry = Registry()
    async with agent_of(config, registry):
        first = await registry.until_registered(1)
        os.kill(running(files).process.pid, signal.SIGKILL)
        await until(lambda: not registry.now, limit_s=1.0)
        second = await registry.until_registered(2)
        assert second.session != first.session


async def test_a_dead_worker_ends_its_engine_at_once(
    config: NodeConfig, files: EngineFiles
) -> None:
    registry = Registry()
    async with agent_of(config, registry):
        first = await registry.until_registered(1)
        old = running(files)
        (worker,) = old.workers
        assert command_line(worker) == command_line(old.process)
        os.kill(worker.pid, signal.SIGKILL)
        await until(lambda: not registry.now, limit_s=1.0)
        second = await registry.until_registered(2)
        assert second.session != first.session
        assert session_members(old.process) == []


async def test_an_agent_that_died_leaves_its_engine_to_the_next(
    config: NodeConfig, files: EngineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry()
    agent = Agent(config, register=registry.register, fork_launch=launch)
    task = asyncio.ensure_future(agent.run())
    first = await registry.until_registered(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    engine = running(files)

    def heavy(_: object) -> int:
        raise AssertionError("the machine is searched before the engine is registered")

    monkeypatch.setattr(engines, "end_strays", heavy)
    async with agent_of(config, registry):
        second = await registry.until_registered(2)
        assert second == replace(first, agent_url=second.agent_url)
        assert running(files).process == engine.process
    assert not is_alive(engine.process)


async def test_a_running_engine_with_other_arguments_is_replaced(
    config: NodeConfig, files: EngineFiles
) -> None:
    registry = Registry()
    agent = Agent(config, register=registry.register, fork_launch=launch)
    task = asyncio.ensure_future(agent.run())
    await registry.until_registered(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    old = running(files)
    assert config.engine is not None
    changed = replace(config, engine=replace(config.engine, extra_args=("--new",)))
    async with agent_of(changed, registry):
        await registry.until_registered(2)
        assert not is_alive(old.process)
        assert running(files).arguments[-1] == "--new"


async def test_an_engine_that_no_file_names_is_ended_first(
    config: NodeConfig, files: EngineFiles
) -> None:
    files.prepare()
    stray = launch(
        ["--host", "127.0.0.1", "--port", str(config.node.port)], os.environ, files.log, files.home
    )
    await asyncio.sleep(0.5)
    registry = Registry()
    async with agent_of(config, registry):
        await registry.until_registered(1)
        assert running(files).process.pid != stray


async def test_an_engine_that_cannot_start_is_tried_again_slowly(
    config: NodeConfig, files: EngineFiles
) -> None:
    assert config.engine is not None
    failing = replace(config, engine=replace(config.engine, extra_args=("--fail",)))
    registry = Registry()
    async with agent_of(failing, registry) as agent:
        await until(lambda: agent._starts >= 3, limit_s=20)
    assert registry.ever == []
    assert "cannot start" in files.log.read_text()


async def test_without_a_fork_server_the_engine_starts_cold(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> int:
        raise PrfaasError("fork server x: gone")

    monkeypatch.setattr(agents, "FORK_SERVER_WAIT_S", 0.2)
    monkeypatch.setattr(engines, "cold_launch", lambda device: launch)
    registry = Registry()
    agent = Agent(config, register=registry.register, fork_launch=unreachable)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(agent.run())
        await registry.until_registered(1)
        agent.stop()


async def test_a_port_in_use_is_refused(config: NodeConfig) -> None:
    with (
        socket.create_server(("127.0.0.1", config.node.port)),
        pytest.raises(PreflightError, match="cannot listen"),
    ):
        await Agent(config, register=Registry().register, fork_launch=launch).run()
