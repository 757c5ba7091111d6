"""`/dashboard` in a real Chromium: before a live gateway, a hostile one, and one that goes away."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chromium import Chromium
from etcd_server import EtcdServer
from fake_agent import FakeAgent
from gateway_world import World
from tiny_tokenizer import words

from prfaas.api_keys import key_digest
from prfaas.api_section import ApiSection
from prfaas.records import Role
from prfaas_gateway.dashboard import handle_dashboard

WIDTHS = [(1280, 900), (390, 844)]
MARKUP = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
SECTIONS = ("tiles", "chart-threshold", "chart-requests", "links", "chart-ttft", "reasons")
MORE_SECTIONS = ("chart-queues", "regions", "decisions")


@pytest.fixture
async def site(shared_etcd: EtcdServer, model_path: Path, tmp_path: Path) -> AsyncIterator[World]:
    """Two regions whose link is told of, and a few requests that have been served."""
    world = World(shared_etcd.endpoint, str(model_path), deployment=f"d{tmp_path.name[-20:]}")
    async with world, FakeAgent("a-prefill-0", "b-decode-0") as agent:
        agent.says(rtt_s=0.02, delivery_bytes_per_s=6e8, available_bytes_per_s=1.2e9, is_up=True)
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0", agent_url=agent.url)
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0")
        await world.add_engine(Role.DECODE, "b", "b-decode-0")
        await world.start_gateway()
        await world.complete(words(10))
        await world.complete(words(500, first=50))
        body = {"model": "tiny", "prompt": words(20), "max_tokens": 4, "stream": True}
        async with world.http.post("/v1/completions", json=body) as response:
            await response.read()
        yield world


@asynccontextmanager
async def opened(directory: Path, url: str, size: tuple[int, int]) -> AsyncIterator[Chromium]:
    async with Chromium(directory) as page:
        await page.open(f"{url}/dashboard", width=size[0], height=size[1])
        yield page


async def shown_by(site: World) -> dict[str, Any]:
    async with site.http.get("/admin/v1/overview") as response:
        shown: dict[str, Any] = await response.json()
        return shown


async def text_of(page: Chromium, part: str) -> str:
    text: str = await page.value(f"document.getElementById('{part}').innerText")
    return text


@pytest.mark.parametrize("size", WIDTHS)
async def test_a_live_gateway_fills_all_sections_in_a_wide_window_and_on_a_phone(
    site: World, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with opened(tmp_path, site.url, size) as page:
        await page.until("document.getElementById('state').textContent == 'live'")
        await page.until("document.getElementById('links').innerText.includes('20 ms')")
        await page.until("document.getElementById('reasons').innerText.includes('200')")
        await page.until("document.querySelectorAll('#chart-requests path').length == 4")
        for part in SECTIONS + MORE_SECTIONS:
            assert await text_of(page, part), f"{part} is empty"
        decisions = await text_of(page, "decisions")
        assert "above_threshold" in decisions
        assert "a-prefill-0 → b-decode-0" in decisions
        assert "4.8 Gbit/s" in await text_of(page, "links")
        assert "b-decode-0" in await text_of(page, "regions")
        label = "document.querySelector('#chart-threshold svg').getAttribute('aria-label')"
        assert "of the plan 100" in await page.value(label)
        assert await page.value("document.documentElement.scrollWidth") <= size[0]
        assert await page.value(
            "[...document.querySelectorAll('main *')].every(one => "
            f"one.getBoundingClientRect().right <= {size[0]} + 1)"
        )
        assert page.problems == []
        assert all(url.startswith((site.url, "data:")) for url in page.requests), page.requests


async def test_the_page_lives_and_follows_what_the_gateway_does(
    site: World, tmp_path: Path
) -> None:
    async with opened(tmp_path, site.url, WIDTHS[0]) as page:
        await page.until("document.getElementById('tiles').innerText.includes('3 since')")
        await site.complete(words(30))
        change = {"threshold_tokens": 400, "why": MARKUP}
        async with site.http.put("/admin/v1/plan", json=change) as response:
            assert response.status == 200
        await page.until("document.getElementById('tiles').innerText.includes('4 since')")
        await page.until("document.getElementById('tiles').innerText.includes('version 1')")
        await page.until("document.getElementById('plan').innerText.includes('<script>')")
        assert await page.value("window.hacked") is None
        assert page.problems == []


async def test_what_a_hostile_gateway_says_is_text_and_nothing_else(
    site: World, tmp_path: Path
) -> None:
    await site.until(lambda: shown_by(site), lambda shown: shown["requests"]["ended"])
    hostile = with_markup(await shown_by(site))

    async def say(_request: web.Request) -> web.Response:
        return web.json_response(hostile)

    app = web.Application()
    app.add_routes([web.get("/dashboard", handle_dashboard), web.get("/admin/v1/overview", say)])
    async with serving(app) as url, opened(tmp_path, url, WIDTHS[1]) as page:
        await page.until("document.getElementById('decisions').innerText.includes('onerror')")
        for part in ("deployment", "reasons", "regions", "links", "decisions", "plan"):
            assert "<img src=x" in await text_of(page, part), part
        assert await page.value("document.images.length") == 0
        assert await page.value("document.scripts.length") == 1
        assert await page.value("window.hacked") is None
        assert await page.value("document.documentElement.scrollWidth") <= 390


async def test_it_says_stale_when_etcd_and_when_the_gateway_is_away(
    etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    async with World(etcd.endpoint, str(model_path), deployment="away") as world:
        await world.start_engines()
        await world.start_gateway()
        async with opened(tmp_path, world.url, WIDTHS[1]) as page:
            await page.until("document.getElementById('state').textContent == 'live'")
            etcd.kill()
            await page.until("document.getElementById('state').textContent == 'stale: etcd away'")
            assert "requests are still served" in await text_of(page, "notice")
            assert "b-prefill-0" in await text_of(page, "regions")
            await world.stop_gateway()
            await page.until("document.getElementById('state').textContent == 'stale: no answer'")
            await page.until("document.body.classList.contains('stale')")
            assert "s old" in await text_of(page, "notice")


async def test_it_asks_for_a_key_and_keeps_it_in_the_tab_only(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    keys = {"admin": "pfs-open-sesame", "client": "pfs-only-tokens"}
    text = [f'[keys.{r}]\nsha256 = "{key_digest(k)}"\nrole = "{r}"\n' for r, k in keys.items()]
    file = tmp_path / "keys.toml"
    file.write_text("\n".join(text))
    world = World(shared_etcd.endpoint, str(model_path), deployment=f"k{tmp_path.name[-20:]}")
    async with world:
        await world.start_engines()
        await world.start_gateway(api=ApiSection(keys_file=str(file)), key=keys["admin"])
        async with opened(tmp_path, world.url, WIDTHS[1]) as page:
            await page.until("!document.getElementById('ask').hidden")
            for wrong in ("pfs-wrong", keys["client"]):
                await enter(page, wrong)
                await page.until("document.getElementById('notice').innerText.includes('refused')")
            assert not await text_of(page, "tiles")
            await enter(page, f" {keys['admin']} ")
            await page.until("document.getElementById('state').textContent == 'live'")
            assert await page.value("document.getElementById('ask').hidden")
            assert await page.value("document.getElementById('key').value") == ""
            assert await page.value("[localStorage.length, document.cookie]") == [0, ""]
            assert await page.value("sessionStorage.length") == 1


async def enter(page: Chromium, key: str) -> None:
    await page.value(f"document.getElementById('key').value = {key!r}")
    await page.value("document.querySelector('#ask button').click()")


async def test_the_page_may_load_nothing_and_be_framed_nowhere(world: World) -> None:
    async with world.http.get("/dashboard") as response:
        policy = response.headers["Content-Security-Policy"]
        text = await response.text()
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "innerHTML" not in text
    assert "http://www.w3.org/2000/svg" in text
    assert text.count("://") == 1, "the page names another server"


def with_markup(value: Any) -> Any:
    """Return a JSON value in which every text is markup, and every key of unknown names too."""
    if isinstance(value, str):
        return MARKUP
    if isinstance(value, list):
        return [with_markup(item) for item in value]
    if isinstance(value, dict):
        return {key: with_markup(item) for key, item in value.items()}
    return value


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_the_overview_gives_only_what_is_new_and_refuses_what_is_no_number(
    site: World,
) -> None:
    async def ask(query: str) -> tuple[int, dict[str, Any]]:
        async with site.http.get(f"/admin/v1/overview{query}") as response:
            return response.status, await response.json()

    await site.until(lambda: shown_by(site), lambda shown: len(shown["history"]) >= 2)
    _, whole = await ask("?decisions=2")
    assert len(whole["decisions"]) == 2
    assert whole["requests"]["total"] == 3
    last = whole["history"][-1]
    _, newer = await ask(f"?since={last['at_s']}")
    assert all(point["at_s"] > last["at_s"] for point in newer["history"])
    assert len(json.dumps(newer)) < 20_000
    for query in ("?since=nan", "?since=-1", "?decisions=101", "?decisions=many"):
        status, answer = await ask(query)
        assert status == 400, query
        assert "allowed" in answer["error"]["message"]
