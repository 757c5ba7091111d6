"""Sources of moves that lie or never answer, and gateways that go away: a move fails, no more."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from test_prefix_port import OPEN, TOKENS, Pools, fetch, ports

from prfaas.blocks.block_layout import DIGEST_BYTES, KV
from prfaas.prefix_moves import FETCH_PATH, OFFER_PATH, FetchRequest, OfferRequest, Outcome
from prfaas_agent.prefix_port import MAX_FETCHES

DIGEST = "00" * DIGEST_BYTES


@pytest.fixture
def pools(tmp_path: Path) -> Any:
    found = Pools(tmp_path)
    found.tell_b()
    yield found
    found.close()


@asynccontextmanager
async def source(answer: Callable[[OfferRequest], Any]) -> AsyncIterator[str]:
    """Serve offers as `answer` makes them; yields `host:port`."""

    async def offer(request: web.Request) -> web.Response:
        found = answer(OfferRequest.decode(await request.read()))
        text = found if isinstance(found, str) else json.dumps(await found)
        return web.Response(text=text, content_type="application/json")

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post(OFFER_PATH, offer)
    async with TestServer(app) as server:
        yield f"{server.host}:{server.port}"


def offered(asked: OfferRequest, **changes: Any) -> dict[str, Any]:
    return {
        "room": asked.room,
        "pages": 1,
        "groups": [{"group": KV, "first": 0, "digests": DIGEST}],
    } | changes


def told(host: Any = "127.0.0.1", port: Any = 9, **changes: Any) -> Callable[[OfferRequest], str]:
    return lambda asked: json.dumps(
        {"offer": offered(asked, **changes), "host": host, "port": port}
    )


LIES: dict[str, tuple[Callable[[OfferRequest], str], str]] = {
    "another room": (told(room=7), "not of the room"),
    "an infinite room": (told(room=float("inf")), "offer of a prefix"),
    "no host": (told(host=None), "no address"),
    "no port": (told(port=None), "no address"),
    "a port there is not": (told(port=1 << 20), "no address"),
    "a group twice": (told(groups=[{"group": KV, "first": 0, "digests": ""}] * 2), "twice"),
    "no groups": (told(groups=[]), "no groups"),
    "a hundred groups": (
        told(groups=[{"group": str(n), "first": 0, "digests": ""} for n in range(100)]),
        "too many",
    ),
    "an unknown group": (
        told(
            groups=[
                {"group": KV, "first": 0, "digests": DIGEST},
                {"group": "x", "first": 0, "digests": DIGEST},
            ]
        ),
        "no group 'x'",
    ),
    "pages without end": (told(pages=1 << 60), "longer than"),
    "nested": (lambda _: "[" * 100_000, "not JSON"),
}


async def test_what_a_source_says_that_cannot_be_is_a_failed_move(pools: Pools) -> None:
    async with ports(pools, OPEN) as (a, b):
        for name, (lie, says) in LIES.items():
            async with source(lie) as liar:
                failed = await fetch(b, liar)
            assert failed.outcome is Outcome.FAILED, name
            assert says in failed.detail, (name, failed.detail)
        moved = await fetch(b, a)
    assert (moved.outcome, moved.tokens) == (Outcome.MOVED, 80)


async def test_who_goes_away_leaves_a_move_in_its_place(pools: Pools) -> None:
    """Else any number of moves would go on, each with a thread that nobody can end."""
    asked: asyncio.Queue[int] = asyncio.Queue()
    go_on = asyncio.Event()

    async def late(wanted: OfferRequest) -> dict[str, Any]:
        asked.put_nowait(wanted.room)
        await go_on.wait()
        return {"offer": None}

    async with source(late) as slow, ports(pools, OPEN) as (a, b):
        body = FetchRequest(f"http://{slow}", "tiny", TOKENS).encode()
        for _ in range(MAX_FETCHES):
            async with aiohttp.ClientSession() as session:
                post = asyncio.ensure_future(session.post(f"http://{b}{FETCH_PATH}", data=body))
                async with asyncio.timeout(10):
                    await asked.get()
                post.cancel()
                with suppress(asyncio.CancelledError):
                    await post
        url = f"http://{b}{FETCH_PATH}"
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=body) as response:
                assert response.status == 503
                assert "under way" in await response.text()
            go_on.set()
            async with asyncio.timeout(10):
                while (await session.post(url, data=body)).status == 503:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert (await fetch(b, a)).outcome is Outcome.MOVED
