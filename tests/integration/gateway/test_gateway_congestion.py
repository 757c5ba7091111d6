"""What the gateway makes of a link's signals: real streams, and a test that says what they say."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdServer
from fake_agent import FakeAgent
from fake_engine import Fault
from gateway_world import World
from tiny_tokenizer import words

from prfaas.records import Role
from prfaas_gateway import link_watch

BUDGET_TOKENS = 400
#: The gateway's threshold is 100; a prompt is as many tokens as words.
MIDDLE, LONG = words(150), words(900, first=1)
CALM: dict[str, Any] = {"utilisation": 0.1}
FULL = {"utilisation": 0.95, "backlog_s": 9.0}
LOSSY = {"utilisation": 0.3, "loss_share": 0.2}
DOWN = {"backlog_s": 9.0, "is_up": False}


@dataclass
class Site:
    """Region a behind a link whose signals a fake agent tells, and the gateway in b."""

    world: World
    agent: FakeAgent

    async def rule(self) -> dict[str, Any]:
        fleet = await self.world.fleet()
        rule: dict[str, Any] = fleet["links"]["a"]["rule"]
        return rule

    async def until_rule(self, **wanted: Any) -> None:
        await self.world.until(
            self.rule, lambda rule: all(rule[key] == value for key, value in wanted.items())
        )

    async def ask(self, prompt: str) -> tuple[int, str, str]:
        response, _ = await self.world.complete(prompt)
        return response.status, response.headers["x-prfaas-route"], self.reason(response)

    def reason(self, response: Any) -> str:
        return str(response.headers["x-prfaas-reason"])


@pytest.fixture
async def site(
    shared_etcd: EtcdServer, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setattr(link_watch, "PERIOD_S", 0.01)
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    async with FakeAgent("a-prefill-0", "b-decode-0") as agent, world:
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0", agent_url=agent.url)
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0")
        await world.add_engine(Role.DECODE, "b", "b-decode-0")
        await world.start_gateway(absorb_tokens=BUDGET_TOKENS)
        site = Site(world, agent)
        agent.says(**CALM)
        await site.until_rule(bandwidth="abundant")
        yield site


async def test_a_filling_link_sends_the_shortest_offloads_home_and_takes_them_back(
    site: Site,
) -> None:
    assert await site.ask(MIDDLE) == (200, "offload", "above_threshold")
    site.agent.says(**FULL)
    await site.until_rule(threshold_factor=8.0)
    assert await site.ask(words(150, first=2)) == (200, "local", "link_congested")
    assert await site.ask(LONG) == (200, "offload", "above_threshold")
    metrics = await site.world.metrics()
    assert 'prfaas_link_threshold_factor{region="a"} 8.0' in metrics
    assert 'prfaas_link_threshold_tokens{region="a"} 800.0' in metrics
    assert 'prfaas_requests_total{code="200",reason="link_congested",route="local"} 1.0' in metrics
    site.agent.says(**CALM)
    await site.until_rule(threshold_factor=1.0)
    assert await site.ask(words(150, first=3)) == (200, "offload", "above_threshold")


async def test_a_cache_that_cannot_be_moved_does_not_bring_its_prompt_home(site: Site) -> None:
    """Though the link is abundant: here the prompt would have to be computed whole."""
    assert await site.ask(LONG) == (200, "offload", "above_threshold")
    assert await site.ask(f"{LONG} more") == (200, "offload", "above_threshold")


@pytest.mark.parametrize("said", [LOSSY, DOWN], ids=["loss", "outage"])
async def test_loss_or_an_outage_closes_the_link_and_it_opens_step_by_step(
    site: Site, said: dict[str, Any]
) -> None:
    site.agent.says(**said)
    await site.until_rule(closed=True)
    assert (await site.rule())["threshold_tokens"] is None
    assert await site.ask(LONG) == (200, "local", "link_closed")
    assert 'prfaas_link_closed{region="a"} 1.0' in await site.world.metrics()
    factors: list[float] = []
    site.agent.says(**CALM)
    while not factors or factors[-1] > 1:
        rule = await site.rule()
        factors += [] if rule["closed"] else [rule["threshold_factor"]]
        await asyncio.sleep(0.01)
    assert factors[0] > 1
    assert factors == sorted(factors, reverse=True)
    assert await site.ask(words(900, first=4)) == (200, "offload", "above_threshold")


async def test_a_region_whose_agents_fall_silent_is_cut_off(site: Site) -> None:
    site.agent.is_mute = True
    await site.until_rule(closed=True)
    assert await site.ask(LONG) == (200, "local", "link_closed")


async def test_over_the_budget_long_prompts_are_refused_and_short_ones_served(site: Site) -> None:
    world = site.world
    site.agent.says(**DOWN)
    await site.until_rule(closed=True)
    world.prefill_b.faults = [Fault.HANG]
    waiting = asyncio.create_task(world.complete(LONG))
    await world.until(lambda: world.prefill_b.requests)
    response, body = await world.complete(words(150, first=5))
    assert response.status == 503
    assert site.reason(response) == "fallback_budget"
    assert int(response.headers["Retry-After"]) >= 1
    assert body["error"]["code"] == "fallback_budget"
    assert await site.ask(words(50, first=9)) == (200, "local", "below_threshold")
    name = 'prfaas_requests_total{code="503",reason="fallback_budget",route="none"} 1.0'
    assert name in await world.metrics()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await world.until(world.fleet, lambda fleet: not fleet["active_requests"])
    assert (await site.ask(words(150, first=6)))[0] == 200


async def test_a_failed_offload_over_the_budget_is_refused(site: Site) -> None:
    world = site.world
    world.prefill_b.faults = [Fault.HANG]
    site.agent.says(**DOWN)
    await site.until_rule(closed=True)
    waiting = asyncio.create_task(world.complete(LONG))
    await world.until(lambda: world.prefill_b.requests)
    site.agent.says(**CALM)
    await site.until_rule(threshold_factor=1.0)
    world.prefill_a.faults = [Fault.HTTP_500]
    response, _ = await world.complete(words(500, first=7))
    assert (response.status, site.reason(response)) == (503, "fallback_budget")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
