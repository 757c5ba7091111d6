"""The gateway before engine twins: routes, fallbacks and clients that leave, with real bytes."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from etcd_server import EtcdServer
from twin_engines import twin_config

from prfaas.blocks import HashedPrompt
from prfaas.config import EtcdSection, GatewaySection, NodeConfig, NodeSection
from prfaas.records import Role
from prfaas.twin_section import TwinSection
from prfaas_agent.registration import registered
from prfaas_cli.twin_fleet import record_of
from prfaas_cpu.models import default_models_dir
from prfaas_gateway import serving
from prfaas_twin.host import hosting
from prfaas_twin.instance import TwinInstance
from prfaas_twin.kv_content import token_at

MODEL = default_models_dir() / "qwen3-next-tiny"
TWIN = TwinSection(dilation=0.02, scale=5000)
THRESHOLD, TOKENS = 1000, 10
SHORT, LONG = [5] * 900, [6] * 8000


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - what is waited for is another process
            await asyncio.sleep(0.01)


async def is_ready(http: aiohttp.ClientSession) -> bool:
    async with http.get("/ready") as response:
        return response.status == 200


@dataclass
class Site:
    """A gateway on loopback, and the twins behind it by name."""

    http: aiohttp.ClientSession
    twins: dict[str, TwinInstance]

    async def ask(self, prompt: list[int], **more: Any) -> tuple[dict[str, str], Any]:
        sampling = {"max_new_tokens": TOKENS}
        body = {"input_ids": prompt, "sampling_params": sampling, **more}
        async with self.http.post("/generate", json=body) as response:
            answer = await response.json(content_type=None)
            assert response.status == 200, answer
            return dict(response.headers), answer

    def expected(self, prompt: list[int]) -> list[int]:
        model = self.twins["d"].model
        seed = model.content.seed(HashedPrompt.of(prompt, namespace=f"{MODEL.name}\0\0"))
        return [token_at(seed, position, model.vocabulary.spoken) for position in range(TOKENS)]

    async def busy(self, *names: str) -> bool:
        return all(self.twins[name].role.requests for name in names)

    async def until_idle(self) -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(*(twin.role.idle() for twin in self.twins.values()))


@pytest.fixture
async def site(shared_etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[Site]:
    deployment, etcd = uuid.uuid4().hex, EtcdSection((shared_etcd.endpoint,))
    configs = []
    for name, role, region in (
        ("far", Role.PREFILL, "a"),
        ("near", Role.PREFILL, "b"),
        ("d", Role.DECODE, "b"),
    ):
        config = twin_config(name, role, model=MODEL, state_dir=tmp_path, twin=TWIN)
        node = replace(config.node, region=region, deployment=deployment)
        configs.append(replace(config, node=node, etcd=etcd))
    gateway = NodeConfig(
        node=NodeSection("g", Role.GATEWAY, "b", deployment),
        etcd=etcd,
        gateway=GatewaySection(model_path=str(MODEL), threshold_tokens=THRESHOLD),
    )
    async with AsyncExitStack() as stack:
        twins = await stack.enter_async_context(hosting(configs))
        for twin in twins:
            await stack.enter_async_context(registered(twin.model.config, record_of(twin)))
        url = await stack.enter_async_context(serving(gateway))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        await until(lambda: is_ready(http))
        yield Site(http, {twin.model.config.node.name: twin for twin in twins})


async def test_prompts_go_their_ways_and_their_tokens_are_right(site: Site) -> None:
    for prompt, route, prefill in ((SHORT, "local", "near"), (LONG, "offload", "far")):
        before = site.twins[prefill].counts.requests
        headers, answer = await site.ask(prompt)
        assert headers["x-prfaas-route"] == route
        assert site.twins[prefill].counts.requests == before + 1
        assert answer["output_ids"] == site.expected(prompt)
    await site.until_idle()


async def test_a_cached_prompt_comes_home_as_the_gateway_foresaw(site: Site) -> None:
    """The gateway's index and the twin's cache follow one rule: what is left is below t."""
    near = [*SHORT, *range(200)]
    assert (await site.ask(near[:1000]))[0]["x-prfaas-route"] == "local"
    headers, answer = await site.ask(near)
    assert headers["x-prfaas-route"] == "local"
    assert answer["meta_info"]["cached_tokens"] == 1000
    assert answer["output_ids"] == site.expected(near)


async def test_a_prefill_that_dies_costs_time_and_no_request(site: Site) -> None:
    wanted = site.expected(LONG)
    site.twins["far"].clock.pause()
    asked = asyncio.create_task(site.ask(LONG))
    await until(lambda: site.busy("far"))
    await asyncio.sleep(0.1)
    site.twins["far"].crash()
    async with asyncio.timeout(10):
        headers, answer = await asked
    assert headers["x-prfaas-route"] == "fallback"
    assert headers["x-prfaas-reason"] == "offload_failed"
    assert answer["output_ids"] == wanted
    await site.until_idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_both_legs(site: Site, stream: bool) -> None:
    site.twins["far"].clock.pause()
    asked = asyncio.create_task(site.ask(LONG, stream=stream))
    await until(lambda: site.busy("far", "d"))
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await site.until_idle()
    site.twins["far"].clock.resume()
    assert (await site.ask(LONG))[1]["output_ids"] == site.expected(LONG)


async def test_sixty_at_once_each_get_their_own(site: Site) -> None:
    prompts = [[number, *([7] * (50 + number * 60))] for number in range(60)]
    answers = await asyncio.gather(*(site.ask(prompt) for prompt in prompts))
    for prompt, (_, answer) in zip(prompts, answers, strict=True):
        assert answer["output_ids"] == site.expected(prompt)
    routes = {headers["x-prfaas-route"] for headers, _ in answers}
    assert routes == {"local", "offload"}
