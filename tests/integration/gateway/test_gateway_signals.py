"""The gateway follows the agents of its nodes: real lanes, real agents' ports, real etcd."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from etcd_server import EtcdServer
from gateway_world import World
from lane_pair import LanePair

from prfaas.config import NodeConfig, NodeSection
from prfaas.records import Role
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.observation_port import observed

REGIONS = (("a-prefill-0", Role.PREFILL), ("b-decode-0", Role.DECODE))


class Site:
    """A prefill in region a and a decode in b, with lanes and agents, and a gateway in b."""

    def __init__(self, world: World, pair: LanePair) -> None:
        self.world = world
        self.pair = pair
        self.agents = {name: AsyncExitStack() for name, _ in REGIONS}

    async def start(self) -> None:
        sockets = (self.pair.send_socket, self.pair.receive_socket)
        for (name, role), path in zip(REGIONS, sockets, strict=True):
            config = NodeConfig(node=NodeSection(name, role, name[0]))
            port = await self.agents[name].enter_async_context(
                observed(config, EngineStats(path, node=name))
            )
            agent_url = f"http://127.0.0.1:{port}"
            await self.world.add_engine(role, name[0], name, agent_url=agent_url)
        await self.world.start_gateway()

    async def link(self) -> dict[str, Any]:
        fleet = await self.world.fleet()
        link: dict[str, Any] = fleet["links"]["a"]
        return link


@pytest.fixture
async def site(shared_etcd: EtcdServer, model_path: Path, tmp_path: Path) -> AsyncIterator[Site]:
    world = World(shared_etcd.endpoint, str(model_path), deployment=f"s{tmp_path.name[-20:]}")
    with LanePair(tmp_path) as pair:
        async with world:
            site = Site(world, pair)
            await site.start()
            yield site
            for stack in site.agents.values():
                await stack.aclose()


async def test_a_links_signals_arrive_go_stale_and_leave_with_their_node(site: Site) -> None:
    world = site.world
    await asyncio.to_thread(site.pair.transfer, rooms=2)
    await world.until(site.link, lambda link: link["available_bytes_per_s"] > 0)
    link = await site.link()
    assert not link["is_stale"]
    assert link["num_paths"] == 1
    assert link["age_s"] < 0.5 + 1.0  # what a busy machine adds
    assert link["signal"]["up"]
    metrics = await world.metrics()
    assert 'prfaas_link_up{region="a"} 1.0' in metrics
    assert 'prfaas_link_stale{region="a"} 0.0' in metrics
    assert (await world.node("b-decode-0"))["signals_age_s"] < 0.5 + 1.0

    await site.agents["a-prefill-0"].aclose()
    await world.until(site.link, lambda link: link["is_stale"])
    link = await site.link()
    assert 1.9 < link["age_s"] < 4.0
    assert link["signal"]["up"]  # what was heard last, and marked as old
    assert 'prfaas_link_stale{region="a"} 1.0' in await world.metrics()

    await world.registrations["a-prefill-0"].__aexit__(None, None, None)
    await world.until_fleet(lambda fleet: fleet["links"] == {})
    assert 'region="a"}' not in (await world.metrics()).replace("prfaas_nodes", "")


async def test_an_agent_that_comes_back_is_heard_again(site: Site) -> None:
    world = site.world
    await asyncio.to_thread(site.pair.transfer, rooms=1)
    await world.until(site.link, lambda link: link["num_paths"] == 1)
    await site.agents["a-prefill-0"].aclose()
    stats = EngineStats(site.pair.send_socket, node="a-prefill-0")
    async with observed(NodeConfig(node=NodeSection("a-prefill-0", Role.PREFILL, "a")), stats) as p:
        record = world.engines["a-prefill-0"].record(agent_url=f"http://127.0.0.1:{p}")
        world.registrations["a-prefill-0"].update(record)
        await asyncio.sleep(2.2)  # longer than the old one's word counts
        await world.until(site.link, lambda link: not link["is_stale"])


async def test_an_agent_that_talks_nonsense_costs_the_gateway_nothing(
    world: World,
) -> None:
    lines = [b"[" * 100_000 + b"\n", b"x" * 3_000_000, b'{"node": "n", "peers": 3}\n', b"\xff\n"]
    asked = 0

    async def signals(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        response = web.StreamResponse(status=200 if asked % 5 else 302)
        response.headers["Location"] = "/signals"
        await response.prepare(request)
        await response.write(lines[asked % len(lines)])
        return response

    app = web.Application()
    app.router.add_get("/signals", signals)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        await world.add_engine(Role.PREFILL, "c", "c-prefill-0", agent_url=url)
        await world.until(lambda: asked, lambda count: count >= 6)
        fleet = await world.fleet()
        assert fleet["links"]["c"]["is_stale"]
        response, _ = await world.complete("a b c")
        assert response.status == 200
    finally:
        await runner.cleanup()
