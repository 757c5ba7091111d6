"""A gateway knows what an engine caches by what the engine tells: real sockets all the way."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from etcd_server import EtcdServer
from gateway_world import World

from prfaas.cache_events import BlockRemoved, BlockStored, CacheShape, StateRemoved, StateStored
from prfaas.cache_events.feed_batch import decode_feed_batch
from prfaas.config import EngineSection, NodeConfig, NodeSection
from prfaas.records import Role
from prfaas_agent.cache_relay import relayed
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.observation_port import observed
from prfaas_agent.sglang_args import events_socket
from prfaas_transport.event_socket import EventServer

PROMPT = [5 + n * 7 % 300 for n in range(640)]
SHAPE = CacheShape(block_tokens=16, stateful=True)
#: As SGLang names blocks: any number that stands for the prefix.
NAMES = tuple(1000 + n for n in range(40))
STORED = [BlockStored(NAMES, tuple(PROMPT)), StateStored((NAMES[-1], NAMES[19]))]


def node_config(directory: Path, port: int = 0) -> NodeConfig:
    return NodeConfig(
        node=NodeSection(
            "a-prefill-0", Role.PREFILL, "a", "demo", agent_port=port, state_dir=str(directory)
        ),
        engine=EngineSection(model_path="/models/tiny", cache_events=True),
    )


@asynccontextmanager
async def agent(config: NodeConfig) -> AsyncIterator[int]:
    """Serve what an agent serves; yields the port."""
    stats = EngineStats(Path(config.node.state_dir) / "stats.sock", node=config.node.name)
    async with relayed(config) as relay, observed(config, stats, relay) as port:
        yield port


@dataclass
class Site:
    world: World
    port: int

    async def told_blocks(self) -> int | None:
        told: int | None = (await self.world.node("a-prefill-0"))["told_blocks"]
        return told

    async def until_told(self, blocks: int) -> None:
        await self.world.until(self.told_blocks, lambda told: told == blocks)

    async def hit(self, tokens: list[int]) -> int:
        """Send a prompt, which is offloaded, and return what the gateway expects to be cached."""
        response, _ = await self.world.complete(tokens)
        assert response.headers["x-prfaas-prefill"] == "a-prefill-0"
        return int(response.headers["x-prfaas-prefix-tokens"])


@pytest.fixture
def engine(tmp_path: Path) -> EventServer:
    return EventServer(events_socket(node_config(tmp_path)), SHAPE)


@pytest.fixture
async def site(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path, engine: EventServer
) -> AsyncIterator[Site]:
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(agent(node_config(tmp_path)))
        stack.push_async_callback(asyncio.to_thread, engine.close)
        await stack.enter_async_context(world)
        told = {"agent_url": f"http://127.0.0.1:{port}", "cache_feed": True, "stateful": True}
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0", **told)
        await world.add_engine(Role.DECODE, "b", "b-decode-0")
        await world.start_gateway()
        yield Site(world, port)


async def test_what_the_engine_has_and_no_more_is_expected(site: Site, engine: EventServer) -> None:
    await site.until_told(0)
    assert await site.hit([*PROMPT, 1]) == 0
    # We sent it there, but the engine tells of nothing that it kept.
    assert await site.hit([*PROMPT, 1]) == 0
    engine.publish(STORED)
    await site.until_told(10)
    assert await site.hit([*PROMPT, 1]) == 640
    assert await site.hit(PROMPT) == 320
    engine.publish([StateRemoved((NAMES[-1],)), BlockRemoved(NAMES[30:])])
    await site.until_told(7)
    assert await site.hit([*PROMPT, 1]) == 320


async def test_a_gateway_that_is_started_anew_is_told_again(
    site: Site, engine: EventServer
) -> None:
    engine.publish(STORED)
    await site.until_told(10)
    await site.world.stop_gateway()
    await site.world.start_gateway()
    await site.until_told(10)
    assert await site.hit([*PROMPT, 1]) == 640


async def test_a_reader_that_was_away_gets_what_it_missed_and_no_more(
    tmp_path: Path, engine: EventServer
) -> None:
    engine.publish(STORED)
    async with agent(node_config(tmp_path)) as port, aiohttp.ClientSession() as http:

        async def read(session: str, seq: int, count: int) -> list[bytes]:
            """Return the next batches, without the shape and empty lines."""
            found: list[bytes] = []
            params = {"session": session, "seq": str(seq)}
            url = f"http://127.0.0.1:{port}/cache"
            async with asyncio.timeout(20):
                while not found:
                    async with http.get(url, params=params) as response:
                        if response.status == 503:  # the engine has not told yet
                            await asyncio.sleep(0.05)
                            continue
                        assert b"version" in await response.content.readline()
                        while len(found) < count:
                            line = await response.content.readline()
                            found += [line] if line != b"\n" else []
            return found

        first = decode_feed_batch((await read("", 0, 1))[0])
        while not first.kept:  # the snapshot was from before the engine's events came
            first = decode_feed_batch((await read("", 0, 1))[0])
        assert first.cleared
        engine.publish([StateRemoved((NAMES[-1],))])
        missed = decode_feed_batch((await read(first.session, first.seq, 1))[0])
        assert (missed.cleared, missed.kept, len(missed.gone)) == (False, (), 1)
        again = decode_feed_batch((await read("of another life", 5, 1))[0])
        assert again.cleared
        async with http.get(f"http://127.0.0.1:{port}/cache?seq=x") as response:
            assert response.status == 400
    await asyncio.to_thread(engine.close)
