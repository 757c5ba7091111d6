"""A pool's host answers a move with what it likes: the move failed, and the gateway goes on."""

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from etcd_server import EtcdServer
from gateway_world import World

from prfaas.prefix_moves import FETCH_PATH
from prfaas.records import Role

PROMPT = [5 + n * 7 % 300 for n in range(640)]
TOLD: dict[str, Any] = {
    "outcome": "moved",
    "tokens": 640,
    "had_tokens": 0,
    "num_bytes": 9000,
    "seconds": 0.5,
    "detail": "",
}
LIES: dict[str, str] = {
    "more bytes than there are": json.dumps(TOLD | {"num_bytes": 10**400}),
    "fewer bytes than none": json.dumps(TOLD | {"num_bytes": -(10**15)}),
    "more tokens than asked for": json.dumps(TOLD | {"tokens": 641}),
    "fewer tokens than none": json.dumps(TOLD | {"had_tokens": -640}),
    "no time": json.dumps(TOLD | {"seconds": float("nan")}),
    "nested": "[" * 60_000,
    "a list": "[]",
    "no JSON": "moved",
}


class LyingPool:
    """Answers every fetch with `says`."""

    says = ""

    async def fetch(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text=self.says, content_type="application/json")


@pytest.fixture
async def lied_to(
    shared_etcd: EtcdServer, model_path: Path
) -> AsyncIterator[tuple[World, LyingPool]]:
    pool, app = LyingPool(), web.Application()
    app.router.add_post(FETCH_PATH, pool.fetch)
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    async with TestServer(app) as server, world:
        url = str(server.make_url("")).rstrip("/")
        for region in ("a", "b"):
            pools = {"pool": region, "pool_url": url}
            await world.add_engine(Role.PREFILL, region, f"{region}-prefill-0", **pools)
        await world.add_engine(Role.DECODE, "b", "b-decode-0")
        await world.start_gateway()
        yield world, pool


async def move(world: World) -> dict[str, Any]:
    body = {"source": "a", "destination": "b", "tokens": PROMPT}
    async with world.http.put("/admin/v1/moves", json=body) as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
        return found


async def test_what_a_pool_says_that_cannot_be_is_a_failed_move_and_no_end_of_the_gateway(
    lied_to: tuple[World, LyingPool],
) -> None:
    world, pool = lied_to
    for name, lie in LIES.items():
        pool.says = lie
        assert (await move(world))["outcome"] == "failed", name
        response, _ = await world.complete("w1 w2")
        assert response.status == 200, name
    for what in ("tokens", "bytes"):
        name = f'prfaas_prefix_moved_{what}_total{{destination="b",source="a"}}'
        assert f"{name} 0.0" in await world.metrics()
    pool.says = json.dumps(TOLD)
    assert (await move(world))["outcome"] == "moved"
