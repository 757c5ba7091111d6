import asyncio
from contextlib import aclosing

import pytest
from etcd_server import EtcdServer
from ports import free_port

from prfaas_coord import (
    Delete,
    EtcdClient,
    EtcdRefused,
    EtcdUnavailable,
    Heard,
    Lease,
    Lost,
    Put,
    Snapshot,
    WatchEvent,
)


async def test_put_get_list_delete(client: EtcdClient) -> None:
    revision = await client.put("/t/a", "1")
    await client.put("/t/b", b"\xff")
    await client.put("/u/a", "other prefix")
    found = await client.get("/t/a")
    assert found is not None
    assert (found.value, found.revision) == (b"1", revision)
    listed = await client.list("/t/")
    assert {key: item.value for key, item in listed.items.items()} == {
        "/t/a": b"1",
        "/t/b": b"\xff",
    }
    assert listed.revision == revision + 2
    assert await client.delete("/t/a")
    assert not await client.delete("/t/a")
    assert await client.get("/t/a") is None


async def test_cas_writes_only_over_the_expected_revision(client: EtcdClient) -> None:
    assert await client.cas("/k", "new", expected_revision=0)
    assert not await client.cas("/k", "again", expected_revision=0)
    found = await client.get("/k")
    assert found is not None
    assert found.value == b"new"
    assert await client.cas("/k", "next", expected_revision=found.revision)
    assert not await client.cas("/k", "late", expected_revision=found.revision)


async def test_nobody_listening_is_unavailable_within_the_deadline() -> None:
    async with EtcdClient([f"127.0.0.1:{free_port()}"], call_timeout_s=0.5) as client:
        async with asyncio.timeout(1.5):
            with pytest.raises(EtcdUnavailable, match=r"127\.0\.0\.1"):
                await client.get("/k")


async def test_a_frozen_server_is_unavailable_within_the_deadline(
    etcd: EtcdServer, client: EtcdClient
) -> None:
    await client.put("/k", "v")
    etcd.pause()
    try:
        async with asyncio.timeout(6.0):
            with pytest.raises(EtcdUnavailable):
                await client.get("/k")
            with pytest.raises(EtcdUnavailable):
                await client.refresh_lease(1)
    finally:
        etcd.resume()


async def test_a_bad_argument_is_refused(client: EtcdClient) -> None:
    with pytest.raises(EtcdRefused):
        await client.put("/k", "v", lease_id=12345)
    with pytest.raises(EtcdRefused):
        await client.put("", "v")


async def test_a_lost_lease_says_so(client: EtcdClient) -> None:
    lease = await Lease.grant(client, 1)
    await client.put("/leased", "v", lease_id=lease.lease_id)
    assert await lease.refresh()
    async with asyncio.TaskGroup() as group:
        group.create_task(lease.keep())
        await asyncio.sleep(2.5)
        assert await client.get("/leased") is not None
        assert not lease.lost.is_set()
        await client.revoke_lease(lease.lease_id)
        async with asyncio.timeout(2):
            await lease.lost.wait()
    assert await client.get("/leased") is None
    assert not await lease.refresh()


async def test_a_revoked_lease_takes_its_keys(client: EtcdClient) -> None:
    lease = await Lease.grant(client, 60)
    await client.put("/leased", "v", lease_id=lease.lease_id)
    await lease.revoke()
    assert await client.get("/leased") is None


class Watching:
    """Collects a watch's events; `until` waits for one that matches."""

    def __init__(self, client: EtcdClient, prefix: str) -> None:
        self.events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._client, self._prefix = client, prefix

    async def run(self) -> None:
        async with aclosing(self._client.watch(self._prefix)) as events:
            async for event in events:
                self.events.put_nowait(event)

    async def next(self, *kinds: type) -> WatchEvent:
        async with asyncio.timeout(8):
            while True:
                event = await self.events.get()
                if isinstance(event, kinds):
                    return event


async def test_watch_yields_a_snapshot_then_changes_then_signs_of_life(client: EtcdClient) -> None:
    await client.put("/w/old", "0")
    watching = Watching(client, "/w/")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watching.run())
        snapshot = await watching.next(Snapshot)
        assert isinstance(snapshot, Snapshot)
        assert set(snapshot.items) == {"/w/old"}
        await client.put("/w/new", "1")
        await client.put("/elsewhere", "1")
        await client.delete("/w/old")
        put = await watching.next(Put, Delete)
        assert isinstance(put, Put)
        assert (put.item.key, put.item.value) == ("/w/new", b"1")
        delete = await watching.next(Put, Delete)
        assert isinstance(delete, Delete)
        assert delete.key == "/w/old"
        await watching.next(Heard)
        task.cancel()


async def test_watch_survives_a_restart(etcd: EtcdServer, client: EtcdClient) -> None:
    await client.put("/w/a", "1")
    watching = Watching(client, "/w/")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watching.run())
        await watching.next(Snapshot)
        etcd.kill()
        await watching.next(Lost)
        await etcd.start()
        snapshot = await watching.next(Snapshot)
        assert isinstance(snapshot, Snapshot)
        assert set(snapshot.items) == {"/w/a"}
        await client.put("/w/b", "2")
        put = await watching.next(Put)
        assert isinstance(put, Put)
        assert put.item.key == "/w/b"
        task.cancel()


async def test_watch_sees_new_writes_after_etcd_lost_its_data(
    etcd: EtcdServer, client: EtcdClient
) -> None:
    for index in range(20):
        await client.put("/w/a", str(index))
    watching = Watching(client, "/w/")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watching.run())
        await watching.next(Snapshot)
        etcd.kill()
        etcd.lose_data()
        await etcd.start()
        snapshot = await watching.next(Snapshot)
        assert isinstance(snapshot, Snapshot)
        assert not snapshot.items
        await client.put("/w/b", "2")
        put = await watching.next(Put)
        assert isinstance(put, Put)
        assert put.item.key == "/w/b"
        task.cancel()


async def test_watch_notices_a_frozen_server(etcd: EtcdServer, client: EtcdClient) -> None:
    watching = Watching(client, "/w/")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watching.run())
        await watching.next(Heard)
        etcd.pause()
        try:
            await watching.next(Lost)
        finally:
            etcd.resume()
        await watching.next(Snapshot)
        task.cancel()
