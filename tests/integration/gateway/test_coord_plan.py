"""The leader and the plan, in a real etcd."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from etcd_server import EtcdServer

from prfaas.plan_record import PlanRecord, RoleCounts
from prfaas.records import RoutingPolicy
from prfaas_coord import (
    Election,
    EtcdClient,
    EtcdUnavailable,
    StoredPlan,
    plan,
    read_plan,
    read_policy,
    read_versions,
    write_plan,
    write_policy,
)

PLAN = PlanRecord(0, 20_000, {"b": RoleCounts(3, 5)}, by="b-gateway-0", why="more_prefill")


class Cuttable(EtcdClient):
    """A client of a process that is killed as far as etcd can see: it says nothing any more."""

    is_cut_off = False

    async def _call(self, name: str, method: Any, request: Any) -> Any:
        if self.is_cut_off:
            raise EtcdUnavailable("cut off")
        return await super()._call(name, method, request)

    async def refresh_lease(self, lease_id: int) -> int:
        if self.is_cut_off:
            raise EtcdUnavailable("cut off")
        return await super().refresh_lease(lease_id)


async def leader_of(*elections: Election) -> Election:
    """Return the one that leads, once one does."""
    async with asyncio.timeout(15):
        while not (leading := [one for one in elections if one.is_leader]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert len(leading) == 1
    return leading[0]


async def test_one_leads_and_when_it_is_gone_another_does(etcd: EtcdServer) -> None:
    async with AsyncExitStack() as stack:
        elections: list[Election] = []
        clients: list[Cuttable] = []
        for number in range(3):
            client = await stack.enter_async_context(Cuttable([etcd.endpoint]))
            election = Election(client, "d", f"g{number}")
            await stack.enter_async_context(election)
            elections.append(election)
            clients.append(client)
        first = await leader_of(*elections)
        others = [one for one in elections if one is not first]
        async with asyncio.timeout(10):
            while any(one.leader != first.leader for one in others):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        clients[elections.index(first)].is_cut_off = True
        second = await leader_of(*others)
        assert second.leader != first._candidate
        assert not first.is_leader


async def test_a_leader_without_etcd_resigns_by_its_own_clock(etcd: EtcdServer) -> None:
    async with (
        EtcdClient([etcd.endpoint], call_timeout_s=0.3) as client,
        Election(client, "d", "g0") as election,
    ):
        await leader_of(election)
        guards = election.guards
        etcd.pause()
        async with asyncio.timeout(10):
            while election.is_leader:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert election.guards != guards
        etcd.resume()
        await leader_of(election)


async def test_a_plan_brings_the_policy_along_and_leaves_its_versions(
    client: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "KEPT_VERSIONS", 3)
    await write_policy(client, "d", RoutingPolicy(512, tenants={"acme": "eu"}))
    for number in range(1, 6):
        stored = await read_plan(client, "d")
        written = await write_plan(
            client, "d", replace(PLAN, threshold_tokens=1000 * number), over=stored
        )
        assert written is not None
        assert written.version == number
    stored = await read_plan(client, "d")
    assert stored.plan == replace(PLAN, threshold_tokens=5000, version=5)
    policy = await read_policy(client, "d")
    assert policy == RoutingPolicy(5000, version=6, tenants={"acme": "eu"})
    assert [one.version for one in await read_versions(client, "d")] == [5, 4, 3]


async def test_of_many_writers_at_once_one_wins_and_an_operators_policy_is_not_lost(
    client: EtcdClient,
) -> None:
    stored = await read_plan(client, "d")
    assert stored == StoredPlan(None, None)
    outcomes = await asyncio.gather(
        *(
            write_plan(client, "d", replace(PLAN, threshold_tokens=number), over=stored)
            for number in range(10)
        )
    )
    assert sum(outcome is not None for outcome in outcomes) == 1
    stored = await read_plan(client, "d")
    await write_policy(client, "d", RoutingPolicy(77))
    assert await write_plan(client, "d", PLAN, over=stored) is None
    policy = await read_policy(client, "d")
    assert policy is not None
    assert policy.threshold_tokens == 77


async def test_who_led_once_writes_nothing(etcd: EtcdServer) -> None:
    async with EtcdClient([etcd.endpoint]) as client:
        async with Election(client, "d", "g0") as election:
            await leader_of(election)
            guards = election.guards
            stored = await read_plan(client, "d")
            stored_after = await write_plan(client, "d", PLAN, over=stored, guards=guards)
            assert stored_after is not None
        stored = await read_plan(client, "d")
        assert await write_plan(client, "d", PLAN, over=stored, guards=guards) is None
        assert await write_plan(client, "d", PLAN, over=stored, guards=election.guards) is None
        async with Election(client, "d", "g1") as election:
            await leader_of(election)
            assert await write_plan(client, "d", PLAN, over=stored, guards=guards) is None
            assert await write_plan(client, "d", PLAN, over=stored, guards=election.guards)


async def test_without_etcd_a_write_fails_in_time(etcd: EtcdServer) -> None:
    async with EtcdClient([etcd.endpoint], call_timeout_s=0.3) as client:
        etcd.kill()
        with pytest.raises(EtcdUnavailable):
            await write_plan(client, "d", PLAN, over=StoredPlan(None, None))
