import asyncio
from dataclasses import replace
from typing import Any

from etcd_server import EtcdServer
from ports import free_port

from prfaas.keys import node_key, policy_key
from prfaas.records import NodeRecord, Role, RoutingPolicy
from prfaas_coord import (
    EtcdClient,
    Lease,
    Membership,
    MembershipView,
    Registration,
    read_policy,
    write_policy,
)


def record(name: str = "b-decode-0", **changes: Any) -> NodeRecord:
    base = NodeRecord(name, Role.DECODE, "b", f"http://127.0.0.1:1/{name}", session="s1")
    return replace(base, **changes)


async def until(view: MembershipView, *names: str, limit_s: float = 8.0) -> None:
    async with asyncio.timeout(limit_s):
        await view.wait_for(lambda seen: set(seen.nodes) == set(names))


async def registration_count(registration: Registration, count: int) -> None:
    while registration.status.registrations_total < count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_a_registered_node_is_seen_updated_and_gone_at_exit(client: EtcdClient) -> None:
    membership = Membership(client, "d")
    async with MembershipView(client, "d") as view:
        async with membership.register(record(), ttl_s=5) as registration:
            await until(view, "b-decode-0")
            async with asyncio.timeout(8):  # others may see it before its own call has returned
                await registration.wait_registered()
            assert registration.status.registered
            assert not view.stale
            registration.update(record(session="s2"))
            async with asyncio.timeout(2):
                await view.wait_for(lambda seen: seen.nodes["b-decode-0"].session == "s2")
        await until(view, limit_s=1)
        assert await client.get(node_key("d", "b-decode-0")) is None


async def test_deployments_are_apart(client: EtcdClient) -> None:
    async with (
        Membership(client, "one").register(record(), ttl_s=5) as registration,
        MembershipView(client, "two") as view,
    ):
        await registration.wait_registered()
        await asyncio.sleep(0.2)
        assert not view.nodes


async def test_a_dead_node_vanishes_after_its_ttl(client: EtcdClient) -> None:
    lease = await Lease.grant(client, 1)
    await client.put(node_key("d", "b-decode-0"), record().to_json(), lease_id=lease.lease_id)
    async with MembershipView(client, "d") as view:
        await until(view, "b-decode-0")
        await until(view, limit_s=4)


async def test_etcd_down_at_the_start_only_delays(etcd: EtcdServer) -> None:
    etcd.kill()
    async with (
        EtcdClient([etcd.endpoint], call_timeout_s=0.5) as client,
        Membership(client, "d").register(record(), ttl_s=5) as registration,
        MembershipView(client, "d") as view,
    ):
        await asyncio.sleep(1.2)
        assert not registration.status.registered
        assert etcd.endpoint in registration.status.detail
        assert view.stale
        assert not view.status.synced
        assert etcd.endpoint in view.status.detail
        await etcd.start()
        await until(view, "b-decode-0")
        assert not view.stale


async def test_nothing_ever_answers_and_exit_is_quick() -> None:
    async with (
        asyncio.timeout(3),
        EtcdClient([f"127.0.0.1:{free_port()}"]) as client,
        Membership(client, "d").register(record(), ttl_s=5),
        MembershipView(client, "d"),
    ):
        await asyncio.sleep(0.2)


async def test_nodes_stay_known_while_etcd_is_down_and_after_its_restart(
    etcd: EtcdServer, client: EtcdClient
) -> None:
    async with (
        Membership(client, "d").register(record(), ttl_s=2) as registration,
        MembershipView(client, "d") as view,
    ):
        await until(view, "b-decode-0")
        etcd.kill()
        async with asyncio.timeout(5):
            await view.wait_for(lambda seen: seen.stale)
        await asyncio.sleep(3)  # longer than the lease
        assert set(view.nodes) == {"b-decode-0"}
        assert view.status.age_s is not None
        assert view.status.age_s > 2.5
        assert not registration.status.registered
        await etcd.start()
        async with asyncio.timeout(8):
            await view.wait_for(lambda seen: not seen.stale)
            await registration.wait_registered()
        assert set(view.nodes) == {"b-decode-0"}
        await asyncio.sleep(3)
        assert set(view.nodes) == {"b-decode-0"}


async def test_data_loss_is_healed_without_the_node_ever_vanishing(
    etcd: EtcdServer, client: EtcdClient
) -> None:
    absent = []
    async with (
        Membership(client, "d").register(record(), ttl_s=2) as registration,
        MembershipView(client, "d") as view,
    ):
        await until(view, "b-decode-0")
        etcd.kill()
        etcd.lose_data()
        await etcd.start()

        def healed(seen: MembershipView) -> bool:
            absent.append(not seen.nodes)
            return not seen.stale and registration.status.registrations_total >= 2

        async with asyncio.timeout(8):
            await view.wait_for(healed)
        assert not any(absent)
        assert await client.get(node_key("d", "b-decode-0")) is not None


async def test_a_node_that_died_during_an_outage_is_forgotten_after_the_grace(
    etcd: EtcdServer, client: EtcdClient
) -> None:
    await client.put(node_key("d", "b-decode-0"), record().to_json())
    async with MembershipView(client, "d", grace_s=1.5) as view:
        await until(view, "b-decode-0")
        etcd.kill()
        etcd.lose_data()
        await etcd.start()
        async with asyncio.timeout(8):
            await view.wait_for(lambda seen: not seen.stale)
        assert set(view.nodes) == {"b-decode-0"}
        await until(view, limit_s=5)


async def test_a_deleted_key_is_written_again(client: EtcdClient) -> None:
    async with Membership(client, "d").register(record(), ttl_s=1) as registration:
        await registration.wait_registered()
        await client.delete(node_key("d", "b-decode-0"))
        async with asyncio.timeout(3), MembershipView(client, "d") as view:
            await view.wait_for(lambda seen: "b-decode-0" in seen.nodes)


async def test_a_revoked_lease_is_replaced(client: EtcdClient) -> None:
    async with Membership(client, "d").register(record(), ttl_s=1) as registration:
        await registration.wait_registered()
        found = await client.get(node_key("d", "b-decode-0"))
        assert found is not None
        await client.revoke_lease(found.lease_id)
        async with asyncio.timeout(3):
            await registration_count(registration, 2)
        again = await client.get(node_key("d", "b-decode-0"))
        assert again is not None
        assert again.lease_id not in (0, found.lease_id)


async def test_the_later_of_two_processes_keeps_the_name(client: EtcdClient) -> None:
    membership = Membership(client, "d")
    async with membership.register(record(session="first"), ttl_s=1) as first:
        await first.wait_registered()
        async with membership.register(record(session="second"), ttl_s=1) as second:
            await second.wait_registered()
            await asyncio.sleep(1)
            found = await client.get(node_key("d", "b-decode-0"))
            assert found is not None
            assert NodeRecord.from_json(found.value).session == "second"
            assert "another process" in first.status.detail
        async with asyncio.timeout(3):
            await first.wait_registered()


async def test_foreign_and_broken_records_are_ignored(client: EtcdClient) -> None:
    await client.put(node_key("d", "broken"), "{")
    await client.put(node_key("d", "misnamed"), record("other").to_json())
    await client.put(policy_key("d"), "[]")
    await client.put("/prfaas/d/future/thing", "x")
    async with (
        MembershipView(client, "d") as view,
        Membership(client, "d").register(record(), ttl_s=5),
    ):
        await until(view, "b-decode-0")
        assert view.policy is None


async def test_a_compacted_view_catches_up(etcd: EtcdServer, client: EtcdClient) -> None:
    async with MembershipView(client, "d") as view:
        async with asyncio.timeout(5):
            await view.wait_for(lambda seen: seen.status.synced)
        etcd.kill()
        async with asyncio.timeout(5):
            await view.wait_for(lambda seen: seen.stale)
        await etcd.start()
        async with EtcdClient([etcd.endpoint]) as writer:
            for index in range(5):
                revision = await writer.put(node_key("d", "b-decode-0"), record().to_json())
                revision = await writer.put("/churn", str(index))
            etcd.compact(revision)
        await until(view, "b-decode-0")
        await client.delete(node_key("d", "b-decode-0"))
        await until(view)


async def test_policy_is_versioned_and_watched(client: EtcdClient) -> None:
    async with MembershipView(client, "d") as view:
        assert await read_policy(client, "d") is None
        first = await write_policy(client, "d", RoutingPolicy(threshold_tokens=100))
        second = await write_policy(client, "d", RoutingPolicy(threshold_tokens=200))
        assert (first.version, second.version) == (1, 2)
        assert await read_policy(client, "d") == second
        async with asyncio.timeout(3):
            await view.wait_for(lambda seen: seen.policy == second)
        await client.delete(policy_key("d"))
        async with asyncio.timeout(3):
            await view.wait_for(lambda seen: seen.policy is None)


async def test_concurrent_policy_writes_get_different_versions(client: EtcdClient) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(write_policy(client, "d", RoutingPolicy(threshold_tokens=number)))
            for number in (1, 2, 3)
        ]
    assert sorted(task.result().version for task in tasks) == [1, 2, 3]
