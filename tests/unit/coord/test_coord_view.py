import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

from prfaas.keys import node_key, policy_key
from prfaas.records import NodeRecord, Role, RoutingPolicy
from prfaas_coord import (
    Delete,
    EtcdClient,
    Heard,
    KeyValue,
    Lost,
    MembershipView,
    Put,
    Snapshot,
    WatchEvent,
)


class ScriptedClient:
    """Tells a view what the test says."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def watch(self, prefix: str) -> AsyncGenerator[WatchEvent, None]:
        assert prefix == "/prfaas/d/"
        while True:
            yield await self._events.get()
            self._events.task_done()

    async def tell(self, *events: WatchEvent) -> None:
        for event in events:
            self._events.put_nowait(event)
        await self._events.join()


def item(name: str) -> KeyValue:
    record = NodeRecord(name, Role.DECODE, "b", "http://x", "s")
    return KeyValue(node_key("d", name), record.to_json().encode(), 1)


def snapshot(*items: KeyValue) -> Snapshot:
    return Snapshot(1, {item.key: item for item in items})


def policy(threshold_tokens: int) -> KeyValue:
    text = RoutingPolicy(threshold_tokens=threshold_tokens).to_json()
    return KeyValue(policy_key("d"), text.encode(), 1)


def view_of(client: ScriptedClient, **options: Any) -> MembershipView:
    return MembershipView(cast("EtcdClient", client), "d", **options)


async def test_it_is_stale_until_the_first_snapshot() -> None:
    client = ScriptedClient()
    async with view_of(client) as view:
        assert view.status.stale
        assert view.status.age_s is None
        await client.tell(Lost("refused"))
        assert (view.status.detail, view.status.synced) == ("refused", False)
        await client.tell(snapshot(item("n")))
        assert (view.stale, view.status.synced, set(view.nodes)) == (False, True, {"n"})


async def test_absence_after_an_outage_proves_nothing_but_a_delete_does() -> None:
    client = ScriptedClient()
    async with view_of(client) as view:
        await client.tell(snapshot(item("n"), item("m")), Lost("down"))
        assert set(view.nodes) == {"n", "m"}
        await client.tell(snapshot())
        assert set(view.nodes) == {"n", "m"}
        await client.tell(Put(item("n")), Delete(node_key("d", "m"), 2))
        assert set(view.nodes) == {"n"}


async def test_a_doubted_node_goes_after_the_grace_even_through_more_outages() -> None:
    client = ScriptedClient()
    async with view_of(client, grace_s=0.0) as view:
        await client.tell(snapshot(item("n")), Lost("down"))
        await client.tell(snapshot())
        assert not view.nodes
    async with view_of(ScriptedClient(), grace_s=100.0) as view:
        client = cast("ScriptedClient", view._client)
        await client.tell(snapshot(item("n")), Lost("1"), snapshot())
        until = view._doubted_until["n"]
        await client.tell(Lost("2"), snapshot())
        assert view._doubted_until["n"] == until
        await client.tell(Put(item("n")), Heard(3))
        assert not view._doubted_until


async def test_absence_from_a_snapshot_without_outage_is_proof() -> None:
    client = ScriptedClient()
    async with view_of(client) as view:
        await client.tell(snapshot(item("n")), snapshot())
        assert not view.nodes


async def test_a_policy_outlives_the_loss_of_etcds_data() -> None:
    client = ScriptedClient()
    async with view_of(client) as view:
        await client.tell(snapshot(policy(9)), Lost("down"), snapshot())
        assert view.policy is not None
        assert view.policy.threshold_tokens == 9
        await client.tell(Put(policy(5)))
        assert view.policy.threshold_tokens == 5
        await client.tell(Delete(policy_key("d"), 3))
        assert view.policy is None


async def test_every_change_is_a_new_mapping() -> None:
    client = ScriptedClient()
    async with view_of(client) as view:
        await client.tell(snapshot(item("n")))
        before = view.nodes
        await client.tell(Heard(1))
        assert view.nodes is before
        await client.tell(Put(item("m")))
        assert set(before) == {"n"}
        assert set(view.nodes) == {"n", "m"}
