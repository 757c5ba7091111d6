"""Requests that must not leave their place, and the record of where requests went."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdServer
from fake_engine import Fault
from gateway_world import World
from tiny_tokenizer import words

from prfaas.records import Role


@pytest.fixture
async def labelled(shared_etcd: EtcdServer, model_path: Path) -> AsyncIterator[World]:
    """Regions b and c are in the EU, a is not."""
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    async with world:
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0")
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0", residency=("eu",))
        await world.add_engine(Role.DECODE, "b", "b-decode-0", residency=("eu", "de"))
        await world.start_gateway()
        yield world


async def ask(world: World, first: int, headers: dict[str, str]) -> tuple[int, str, str]:
    body = {"model": "tiny", "prompt": words(500, first=first), "max_tokens": 2}
    async with world.http.post("/v1/completions", json=body, headers=headers) as response:
        said = response.headers
        return response.status, said["x-prfaas-reason"], said.get("x-prfaas-prefill", "")


async def decisions(world: World, query: str = "") -> list[dict[str, Any]]:
    async with world.http.get(f"/admin/v1/decisions{query}") as response:
        assert response.status == 200, await response.text()
        found: list[dict[str, Any]] = (await response.json())["decisions"]
        return found


async def test_a_tagged_request_never_leaves_its_label(labelled: World) -> None:
    world, eu = labelled, {"x-prfaas-residency": "eu"}
    assert await ask(world, 0, {}) == (200, "above_threshold", "a-prefill-0")
    assert await ask(world, 1, eu) == (200, "no_remote_prefill", "b-prefill-0")
    await world.add_engine(Role.PREFILL, "c", "c-prefill-0", residency=("eu",))
    await world.until_fleet(lambda fleet: "c-prefill-0" in str(fleet["nodes"]))
    assert await ask(world, 2, eu) == (200, "above_threshold", "c-prefill-0")
    world.engines["c-prefill-0"].faults = [Fault.HTTP_500]
    assert await ask(world, 3, eu) == (200, "offload_failed", "b-prefill-0")
    # Not even when nothing else is left.
    world.engines["c-prefill-0"].faults = [Fault.HTTP_500]
    world.prefill_b.faults = [Fault.HTTP_500]
    status, _, _ = await ask(world, 4, eu)
    assert status == 502
    assert await ask(world, 5, {"x-prfaas-residency": "us"}) == (403, "residency", "")
    assert await ask(world, 6, {"x-prfaas-residency": "E U"}) == (400, "invalid_request", "")
    assert len(world.prefill_a.requests) == 1


async def test_a_tenants_rule_holds_whatever_its_requests_say(labelled: World) -> None:
    world = labelled
    policy = {"tenants": {"acme": "eu"}}
    async with world.http.put("/admin/v1/policy", json=policy) as response:
        assert response.status == 200
        assert (await response.json())["threshold_tokens"] == 100
    acme = {"x-prfaas-tenant": "acme"}
    assert await ask(world, 0, acme) == (200, "no_remote_prefill", "b-prefill-0")
    assert await ask(world, 1, {"x-prfaas-tenant": "other"}) == (
        200,
        "above_threshold",
        "a-prefill-0",
    )
    status, reason, _ = await ask(world, 2, acme | {"x-prfaas-residency": "us"})
    assert (status, reason) == (403, "residency")
    async with world.http.put("/admin/v1/policy", json={"threshold_tokens": 200}) as response:
        assert (await response.json())["tenants"] == {"acme": "eu"}
    for wrong in ({"tenants": []}, {"tenants": {"a": 1}}, {"tenants": {"": "eu"}}):
        async with world.http.put("/admin/v1/policy", json=wrong) as response:
            assert response.status == 400


async def test_decisions_are_kept_with_their_reasons(labelled: World) -> None:
    world = labelled
    world.prefill_a.faults = [Fault.HTTP_500]
    await ask(world, 0, {"x-request-id": "first"})
    await ask(world, 1, {"x-prfaas-residency": "us", "x-request-id": "second"})
    found = await decisions(world)
    assert [(one["request_id"], one["attempt"], one["reason"]) for one in found] == [
        ("second", 1, "residency"),
        ("first", 2, "offload_failed"),
        ("first", 1, "above_threshold"),
    ]
    assert found[2]["prompt_tokens"] == 500
    assert (found[1]["prefill"], found[2]["prefill"]) == ("b-prefill-0", "a-prefill-0")
    assert (found[0]["route"], found[0]["residency"]) == ("none", "us")
    assert [one["attempt"] for one in await decisions(world, "?reason=offload_failed")] == [2]
    assert len(await decisions(world, "?limit=2")) == 2
    assert len(await decisions(world, "?request_id=first")) == 2
    for wrong in ("?limit=0", "?limit=x", "?limit=1001", "?reason=because"):
        async with world.http.get(f"/admin/v1/decisions{wrong}") as response:
            assert response.status == 400


async def test_a_node_that_comes_later_starts_slowly(labelled: World) -> None:
    await labelled.add_engine(Role.DECODE, "b", "b-decode-1")
    await labelled.until_fleet(lambda fleet: "b-decode-1" in str(fleet["nodes"]))
    assert (await labelled.node("b-decode-1"))["share"] < 1
    assert (await labelled.node("b-decode-0"))["share"] == 1
