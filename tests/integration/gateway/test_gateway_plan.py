"""The plan: by hand and by the leader, its versions, the roles it wants, and another leader."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from etcd_server import EtcdServer
from gateway_world import World
from tiny_tokenizer import words

from prfaas.config import EtcdSection, GatewaySection, NodeConfig, NodeSection
from prfaas.planning.paper import PAPER_CASE
from prfaas.records import Role, RoleWish
from prfaas_coord.wishes import read_wishes
from prfaas_gateway import scheduler, serving

CASE = PAPER_CASE.replace('name = "prfaas"', 'name = "a"').replace('name = "pd"', 'name = "b"')


@pytest.fixture
async def site(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """A prefill in a; in b a prefill and two decodes that can change roles; a planning gateway."""
    monkeypatch.setattr(scheduler, "LOOK_S", 0.05)
    monkeypatch.setattr(scheduler, "REPLAN_S", 0.2)
    monkeypatch.setattr(scheduler, "MIN_REQUESTS", 20)
    (tmp_path / "case.toml").write_text(CASE)
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        for name in ("b-decode-1", "b-decode-2"):
            await world.add_engine(Role.DECODE, "b", name, role_switch=True)
        await world.start_gateway(case=str(tmp_path / "case.toml"))
        yield world


async def plan(world: World) -> dict[str, Any]:
    async with world.http.get("/admin/v1/plan") as response:
        assert response.status == 200, await response.text()
        found: dict[str, Any] = await response.json()
        return found


async def put(world: World, status: int = 200, **body: Any) -> dict[str, Any]:
    async with world.http.put("/admin/v1/plan", json=body) as response:
        assert response.status == status, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


async def wishes(world: World) -> dict[str, RoleWish | None]:
    return await read_wishes(world.etcd, world.deployment)


async def test_an_operators_plan_is_followed_and_a_dry_run_is_not(site: World) -> None:
    dry = await put(site, threshold_tokens=300, pinned=True, why="tonight", dry_run=True)
    assert (dry["dry_run"], dry["plan"]["version"], dry["plan"]["why"]) == (True, 1, "tonight")
    assert dry["changes"]["threshold_tokens"] == [None, 300]
    assert (await plan(site))["plan"] is None
    wet = await put(site, threshold_tokens=300, pinned=True, why="tonight", expected_version=0)
    assert wet["plan"] | {"at_s": 0} == dry["plan"] | {"at_s": 0}
    await site.until_fleet(lambda fleet: fleet["threshold_tokens"] == 300)
    response, _ = await site.complete(words(300))
    assert response.headers["x-prfaas-reason"] == "below_threshold"
    response, _ = await site.complete(words(301, first=400))
    assert response.headers["x-prfaas-reason"] == "above_threshold"
    said = await put(site, 400, threshold_tokens=1, expected_version=0)
    assert "there is version 1" in said["error"]["message"]
    await put(site, pinned=False)
    async with site.http.get("/admin/v1/plan/versions") as response:
        versions = (await response.json())["versions"]
    assert [(one["version"], one["pinned"], one["threshold_tokens"]) for one in versions] == [
        (2, False, 300),
        (1, True, 300),
    ]
    assert versions[0]["by"] == "operator at b-gateway-0"


@pytest.mark.parametrize(
    "body",
    [
        {"threshold_tokens": -1},
        {"threshold_tokens": True},
        {"roles": {"b": {"n_p": 1}}},
        {"roles": {"b": {"n_p": 1, "n_d": 0}}},
        {"roles": [1]},
        {"pinned": 1},
        {"why": "x" * 300},
        {"version": 3},
    ],
)
async def test_what_is_no_plan_is_refused(site: World, body: dict[str, Any]) -> None:
    await put(site, 400, **body)
    assert (await plan(site))["plan"] is None


async def test_the_leader_finds_a_better_threshold_and_a_pin_holds_it_back(site: World) -> None:
    await put(site, threshold_tokens=100, pinned=True)
    for number in range(30):
        response, _ = await site.complete(words(20 + 25 * number, first=60 * number))
        assert response.status == 200
    await site.until(lambda: plan(site), lambda found: found["proposal"] is not None)
    found = await plan(site)
    assert found["plan"]["version"] == 1
    assert (found["leader"], found["is_leader"]) == ("b-gateway-0", True)
    assert found["demand"]["requests"] == 30
    assert found["demand"]["output_tokens"] == 4
    assert found["proposal"]["lambda_after"] > found["proposal"]["lambda_before"]
    await put(site, pinned=False)
    await site.until(lambda: plan(site), lambda found: found["plan"]["version"] >= 3)
    written = (await plan(site))["plan"]
    assert (written["by"], written["pinned"]) == ("b-gateway-0", False)
    assert written["why"] in ("threshold", "more_prefill", "more_decode")
    await site.until_fleet(lambda fleet: fleet["threshold_tokens"] == written["threshold_tokens"])


async def test_nodes_are_asked_for_the_roles_of_the_plan_one_after_the_other(site: World) -> None:
    await put(site, roles={"b": {"n_p": 3, "n_d": 1}}, pinned=True)
    await site.until(lambda: wishes(site))
    asked = await wishes(site)
    assert {name: wish.role for name, wish in asked.items() if wish} == {"b-decode-1": Role.PREFILL}
    assert (await plan(site))["converting"] == {"b-decode-1": "prefill"}
    # Its agent does as it is asked.
    registration = site.registrations["b-decode-1"]
    registration.update(replace(registration.record, draining=True))
    await asyncio.sleep(0.3)
    assert list(await wishes(site)) == ["b-decode-1"]
    registration.update(replace(registration.record, role=Role.PREFILL, draining=False))
    await site.until(lambda: wishes(site), lambda asked: list(asked) == ["b-decode-2"])
    registration = site.registrations["b-decode-2"]
    registration.update(replace(registration.record, role=Role.PREFILL))
    await site.until(lambda: wishes(site), lambda asked: not asked)
    await asyncio.sleep(0.3)
    assert not await wishes(site)


async def test_a_node_is_not_asked_any_more_once_the_plan_is_another(site: World) -> None:
    await put(site, roles={"b": {"n_p": 2, "n_d": 2}}, pinned=True)
    await site.until(lambda: wishes(site))
    await put(site, roles={"b": {"n_p": 1, "n_d": 3}})
    await site.until(lambda: wishes(site), lambda asked: not asked)


async def test_the_leader_adds_up_what_the_gateways_see(site: World, tmp_path: Path) -> None:
    await put(site, threshold_tokens=100, pinned=True)
    config = NodeConfig(
        node=NodeSection("b-gateway-1", Role.GATEWAY, "b", site.deployment),
        etcd=EtcdSection((site.endpoint,)),
        gateway=GatewaySection(site.model_path, case=str(tmp_path / "case.toml")),
    )
    async with serving(config) as url, aiohttp.ClientSession(url) as other:
        for number in range(15):  # neither sees enough alone
            prompt = words(20 + 50 * number, first=60 * number)
            assert (await site.complete(prompt))[0].status == 200
            body = {"prompt": prompt, "max_tokens": 4}
            async with other.post("/v1/completions", json=body) as response:
                assert response.status == 200
        found = await plan(site)
        assert found["is_leader"]
        assert found["demand"]["requests"] == 15
        await site.until(lambda: plan(site), lambda found: found["proposal"] is not None)


async def test_another_leader_goes_on_with_the_same_plan(site: World, tmp_path: Path) -> None:
    await put(site, threshold_tokens=777, roles={"b": {"n_p": 2, "n_d": 2}}, pinned=True)
    await site.until(lambda: wishes(site))
    config = NodeConfig(
        node=NodeSection("b-gateway-1", Role.GATEWAY, "b", site.deployment),
        etcd=EtcdSection((site.endpoint,)),
        gateway=GatewaySection(site.model_path, case=str(tmp_path / "case.toml")),
    )
    async with serving(config) as url, aiohttp.ClientSession(url) as other:

        async def seen() -> dict[str, Any]:
            async with other.get("/admin/v1/plan") as response:
                found: dict[str, Any] = await response.json()
                return found

        await site.until(seen, lambda found: found["leader"] == "b-gateway-0")
        before = (await plan(site))["plan"]
        await site.stop_gateway()
        await site.until(seen, lambda found: found["is_leader"])
        after = await seen()
        assert after["plan"] == before
        assert after["threshold_tokens"] == 777
        await site.until(seen, lambda found: found["converting"] == {"b-decode-1": "prefill"})
        registration = site.registrations["b-decode-1"]
        registration.update(replace(registration.record, role=Role.PREFILL))
        await site.until(lambda: wishes(site), lambda asked: not asked)
