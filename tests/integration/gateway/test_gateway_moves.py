"""Prefixes move between real pools because requests ask for them, and by hand."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etcd_server import EtcdServer
from fake_agent import FakeAgent
from gateway_world import World
from pool_service import PoolProcess, load, store

from prfaas.blocks.block_layout import KV
from prfaas.blocks.page_hashes import page_hashes
from prfaas.config import NodeConfig, NodeSection
from prfaas.pool_section import PoolSection
from prfaas.records import Role
from prfaas_agent.prefix_port import moving
from prfaas_gateway import link_watch
from prfaas_pool import PoolClient
from prfaas_pool.space import Space

HOST = "127.0.0.1"
SIZES = {KV: 900}
PAGE = 16
SPACE = Space("tiny", "tp0/1", PAGE, SIZES)
PROMPT = [5 + n * 7 % 300 for n in range(640)]
CALM: dict[str, Any] = {"utilisation": 0.1, "available_bytes_per_s": 1e9}
FULL: dict[str, Any] = {"utilisation": 0.95, "backlog_s": 9.0, "available_bytes_per_s": 1e9}


def chain(tokens: list[int]) -> bytes:
    raw = np.asarray(tokens, dtype="<u4").tobytes()
    return SPACE.namespace.keys(page_hashes(raw, PAGE))


@dataclass
class Site:
    """Two regions with pools, and the gateway in b; a test says what the link is like."""

    world: World
    agent: FakeAgent
    pools: dict[str, PoolClient]

    def store_in_a(self, tokens: list[int]) -> None:
        """Do what a prefill does with a prompt."""
        keys = chain(tokens)
        assert store(self.pools["a"], keys, 0, group=KV, size=SIZES[KV]) == len(keys) // 16

    def pages_in_b(self, tokens: list[int]) -> int:
        return load(self.pools["b"], chain(tokens), 0, group=KV, size=SIZES[KV])

    async def ask(self, tokens: list[int]) -> tuple[str, str, int]:
        """Return the route, the verdict on a move, and the expected hit."""
        response, _ = await self.world.complete(tokens)
        assert response.status == 200
        noted = await self.admin("decisions?limit=1")
        decision = noted["decisions"][0]
        return decision["route"], decision["move"], decision["prefix_tokens"]

    async def admin(self, path: str) -> dict[str, Any]:
        async with self.world.http.get(f"/admin/v1/{path}") as response:
            assert response.status == 200, await response.text()
            found: dict[str, Any] = await response.json()
            return found

    async def put(self, **body: Any) -> tuple[int, dict[str, Any]]:
        async with self.world.http.put("/admin/v1/moves", json=body) as response:
            return response.status, await response.json()

    async def until_bandwidth(self, wanted: str) -> None:
        async def seen() -> str:
            return str((await self.world.fleet())["links"]["a"]["rule"]["bandwidth"])

        await self.world.until(seen, lambda bandwidth: bandwidth == wanted)


@pytest.fixture
async def site(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setattr(link_watch, "PERIOD_S", 0.01)
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    async with AsyncExitStack() as stack:
        pools, moves = {}, {}
        for region in ("a", "b"):
            (tmp_path / region).mkdir()
            service = PoolProcess(tmp_path / region, num_bytes=128 * 4096)
            stack.callback(service.close)
            pools[region] = PoolClient(service.socket)
            stack.callback(pools[region].close)
            pools[region].describe(SPACE)
            config = NodeConfig(
                node=NodeSection(f"{region}-prefill-0", Role.PREFILL, region, "demo", HOST),
                pool=PoolSection(str(service.socket)),
            )
            port = await stack.enter_async_context(moving(config))
            moves[region] = {"pool": region, "pool_url": f"http://{HOST}:{port}"}
        agent = await stack.enter_async_context(FakeAgent("a-prefill-0", "b-decode-0"))
        agent.says(**CALM)
        await stack.enter_async_context(world)
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0", agent_url=agent.url, **moves["a"])
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0", **moves["b"])
        await world.add_engine(Role.DECODE, "b", "b-decode-0")
        await world.start_gateway()
        found = Site(world, agent, pools)
        await found.until_bandwidth("abundant")
        yield found


async def test_a_prefix_that_is_asked_for_often_comes_here_and_its_prompts_stay(site: Site) -> None:
    """Prompts above the threshold are offloaded, and found at home once their prefix is here."""
    site.store_in_a(PROMPT)
    seen = [await site.ask([*PROMPT, n, n]) for n in range(3)]
    assert [move for _, move, _ in seen] == ["", "not_hot", "not_hot"]
    assert {route for route, _, _ in seen} == {"offload"}
    route, move, _ = await site.ask([*PROMPT, 9, 9])
    assert (route, move) == ("offload", "replicate")
    await site.world.until(lambda: site.admin("moves"), lambda found: bool(found["moves"]))
    moved = (await site.admin("moves"))["moves"][0]
    assert (moved["cause"], moved["outcome"], moved["tokens"]) == ("hot", "moved", 640)
    assert moved["num_bytes"] == 40 * SIZES[KV]
    assert site.pages_in_b(PROMPT) == 40
    assert await site.ask([*PROMPT, 8, 8]) == ("local", "", 640)
    metrics = await site.world.metrics()
    outcome = '{cause="hot",outcome="moved",region="b"} 1.0'
    assert f"prfaas_prefix_moves_total{outcome}" in metrics
    assert 'prfaas_prefix_moved_tokens_total{destination="b",source="a"} 640.0' in metrics
    assert 'prfaas_prefix_move_verdicts_total{verdict="replicate"} 1.0' in metrics


async def test_a_request_waits_for_a_move_that_is_faster_than_its_prefill(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.store_in_a(PROMPT)
    assert (await site.ask(PROMPT))[0] == "offload"
    monkeypatch.setattr(
        link_watch.LinkWatch, "_speeds", lambda *_: {"a": 100.0, "b": 100.0}
    )  # 6 s for the prompt
    await site.world.until(site.world.fleet, lambda fleet: fleet["tokens_per_s"].get("b") == 100)
    assert await site.ask([*PROMPT, 3]) == ("local", "wait", 640)
    assert site.pages_in_b(PROMPT) == 40


async def test_a_full_link_moves_nothing(site: Site) -> None:
    site.store_in_a(PROMPT)
    await site.ask(PROMPT)
    site.agent.says(**FULL)
    await site.until_bandwidth("scarce")
    for n in range(5):
        assert (await site.ask([*PROMPT, n]))[1] == ""
    assert (await site.admin("moves"))["moves"] == []


async def test_what_is_not_there_is_not_counted_on(site: Site) -> None:
    """The gateway believes that a has it; its pool does not."""
    await site.ask(PROMPT)
    seen = [await site.ask([*PROMPT, n]) for n in range(4)]
    await site.world.until(lambda: site.admin("moves"), lambda found: bool(found["moves"]))
    assert (await site.admin("moves"))["moves"][0]["outcome"] == "nothing"
    assert "replicate" in [move for _, move, _ in seen]
    assert await site.ask([*PROMPT, 7]) == ("offload", "recent", 640)


async def test_a_prefix_is_moved_by_hand(site: Site) -> None:
    site.store_in_a(PROMPT)
    status, answer = await site.put(source="a", destination="b", tokens=PROMPT)
    assert status == 200
    assert (answer["outcome"], answer["tokens"], answer["had_tokens"]) == ("moved", 640, 0)
    assert site.pages_in_b(PROMPT) == 40
    status, answer = await site.put(source="a", destination="b", tokens=[*PROMPT, 1, 2])
    assert (answer["outcome"], answer["num_bytes"]) == ("nothing", 0)
    assert [m["cause"] for m in (await site.admin("moves"))["moves"]] == ["by_hand", "by_hand"]


NO_MOVES: list[tuple[dict[str, Any], int, str]] = [
    ({"source": "a", "destination": "b"}, 400, "text and tokens"),
    ({"source": "a", "destination": "a", "tokens": [1]}, 400, "same pool"),
    ({"source": "c", "destination": "a", "tokens": [1]}, 503, "'c'"),
    ({"source": "a", "destination": "b", "tokens": [-1]}, 400, "tokens: token ids are 0 to"),
    ({"source": "a", "destination": "b", "text": "x", "extra": 1}, 400, "expected"),
    ({"destination": "b", "text": "x"}, 400, "source"),
    ({"source": "a", "destination": "b", "text": "\udc00"}, 400, "text: not valid Unicode"),
    (
        {"source": "a", "destination": "b", "tokens": [1], "cache_salt": "\ud800"},
        400,
        "cache_salt: not valid Unicode",
    ),
    ({"source": "a", "destination": "b", "tokens": [1 << 40]}, 400, "token ids are 0 to"),
]


async def test_what_is_no_move_is_refused(site: Site) -> None:
    for body, status, text in NO_MOVES:
        found, answer = await site.put(**body)
        assert found == status
        assert text in answer["error"]["message"]
