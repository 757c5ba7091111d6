"""Follow the keys below a prefix, across disconnects, restarts, compaction and loss of data."""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
from aetcd import rpc

from prfaas_coord.errors import EtcdError, EtcdUnavailable
from prfaas_coord.events import Delete, Heard, Lost, Put, WatchEvent
from prfaas_coord.ranges import key_value, prefix_end

if TYPE_CHECKING:
    from prfaas_coord.client import EtcdClient

PROGRESS_INTERVAL_S = 1.0
"""How often an idle stream is asked for a sign of life."""

SILENCE_LIMIT_S = 3.0
"""A stream silent for this long is dead, though its TCP connection may still stand."""

_BACKOFF_FIRST_S = 0.1
_BACKOFF_LAST_S = 1.0


async def watch(client: "EtcdClient", prefix: str) -> AsyncGenerator[WatchEvent, None]:
    """Yield a snapshot, then every change, for ever; never raises for what etcd does.

    After any break, and after compaction, the next event is a new `Snapshot`: the state is
    small, and a revision cannot be trusted to resume from after etcd lost its data.
    `Heard` comes about once a second while nothing changes, `Lost` on each failed try.
    """
    backoff_s = _BACKOFF_FIRST_S
    while True:
        try:
            snapshot = await client.list(prefix)
            yield snapshot
            backoff_s = _BACKOFF_FIRST_S
            async with aclosing(_follow(client, prefix, snapshot.revision)) as events:
                async for event in events:
                    yield event
        except EtcdError as error:
            yield Lost(str(error))
        await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        backoff_s = min(backoff_s * 2, _BACKOFF_LAST_S)


async def _follow(
    client: "EtcdClient", prefix: str, revision: int
) -> AsyncGenerator[WatchEvent, None]:
    """Yield changes after `revision`; return when a new snapshot is needed."""
    create = rpc.WatchCreateRequest(
        key=prefix.encode(), range_end=prefix_end(prefix), start_revision=revision + 1
    )
    stream = client.open_watch()
    try:
        await _write(stream, rpc.WatchRequest(create_request=create))
        async with aclosing(_responses(stream)) as responses:
            async for response in responses:
                if response.compact_revision or response.header.revision < revision:
                    return
                if response.canceled:
                    raise EtcdUnavailable(f"etcd watch cancelled: {response.cancel_reason}")
                for event in _events(response):
                    yield event
    except grpc.aio.AioRpcError as error:
        text = f"etcd {','.join(client.endpoints)}: watch: {error.code().name}: {error.details()}"
        raise EtcdUnavailable(text) from None
    finally:
        stream.cancel()


def _events(response: Any) -> Iterator[WatchEvent]:
    if not response.events:
        yield Heard(int(response.header.revision))
    for event in response.events:
        item = key_value(event.kv)
        if event.type == rpc.Event.DELETE:
            yield Delete(item.key, item.revision)
        else:
            yield Put(item)


async def _responses(stream: Any) -> AsyncGenerator[Any, None]:
    """Yield what the stream says, asking for a sign of life when it is silent.

    A pending read must not be cancelled to look at the clock: gRPC would end the whole stream.
    """
    silent_s = 0.0
    reading = asyncio.ensure_future(stream.read())
    try:
        while True:
            done, _ = await asyncio.wait({reading}, timeout=PROGRESS_INTERVAL_S)
            if not done:
                silent_s += PROGRESS_INTERVAL_S
                if silent_s >= SILENCE_LIMIT_S:
                    raise EtcdUnavailable(f"etcd watch: silent for {silent_s:.0f} s")
                await _write(stream, rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
                continue
            silent_s = 0.0
            response = reading.result()
            if response is grpc.aio.EOF:
                raise EtcdUnavailable("etcd watch: the stream ended")
            reading = asyncio.ensure_future(stream.read())
            yield response
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _write(stream: Any, request: Any) -> None:
    try:
        async with asyncio.timeout(SILENCE_LIMIT_S):
            await stream.write(request)
    except (TimeoutError, asyncio.InvalidStateError) as error:
        raise EtcdUnavailable(f"etcd watch: cannot write: {error!r}") from None
