"""From the engine's events, on a Unix socket, to the feed that gateways read: without tokens.

What a prompt says stays on this host; only hashes leave it, and fewer: one for 64 tokens.
"""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from prfaas.cache_events import (
    MAX_LINE_BYTES,
    Cursor,
    decode_batch,
    decode_shape,
    encode_cursor,
)
from prfaas.cache_events.feed import CacheFeed, root_of_model
from prfaas.cache_events.feed_batch import FeedBatch, FeedShape
from prfaas.config import NodeConfig
from prfaas.errors import ProtocolError
from prfaas_agent.sglang_args import events_socket, model_id_of
from prfaas_coord.again import again_and_again
from prfaas_coord.backoff import Backoff
from prfaas_coord.companion import Companion

_CONNECT_TIMEOUT_S = 5.0


class CacheRelay:
    """Follows one engine through all of its lives. `shape` is None until one has told."""

    def __init__(self, path: Path, model_id: str) -> None:
        self.shape: FeedShape | None = None
        self._path = path
        self._lock = threading.Lock()
        self._feed = CacheFeed(uuid.uuid4().hex, root_of=root_of_model(model_id))
        self._cursor = Cursor()
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Follow until cancelled."""
        what = f"events socket {self._path}"
        await again_and_again(self._read_stream, what=what, backoff=Backoff())

    async def since(self, session: str, seq: int) -> list[FeedBatch]:
        """Return what a reader lacks: the batches after its last, or a snapshot."""
        return await asyncio.to_thread(self._since, session, seq)

    async def wait_changed(self, timeout_s: float) -> None:
        """Return when something was told, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def _since(self, session: str, seq: int) -> list[FeedBatch]:
        with self._lock:
            batches = self._feed.since(session, seq)
            return self._feed.snapshot() if batches is None else batches

    async def _read_stream(self) -> None:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_LINE_BYTES)
            writer.write(encode_cursor(self._cursor))
            shape = decode_shape(await reader.readline())
        try:
            self.shape = FeedShape(shape.stateful, shape.window_tokens, shape.block_tokens)
            self._tell()
            while line := await reader.readline():
                await asyncio.to_thread(self._take, line)
                self._tell()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _take(self, line: bytes) -> None:
        """Take a batch of the engine's. Raises: ProtocolError: it is none, or one is missing."""
        batch = decode_batch(line)
        expected = Cursor(self._cursor.session, self._cursor.seq + 1)
        if not batch.snapshot and Cursor(batch.session, batch.seq) != expected:
            self._cursor = Cursor()
            raise ProtocolError(f"batch {batch.seq} after {expected.seq - 1}")
        with self._lock:
            self._feed.apply(batch.events)
        if not batch.more:
            self._cursor = Cursor(batch.session, batch.seq)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def relayed(config: NodeConfig) -> AsyncIterator[CacheRelay | None]:
    """Follow the engine's events while the context lasts; None where it publishes none."""
    if config.engine is None or not config.engine.cache_events:
        yield None
        return
    relay = CacheRelay(events_socket(config), model_id_of(config.engine))
    companion = Companion()
    await companion.start(relay.follow(), name="cache events")
    try:
        yield relay
    finally:
        await companion.stop(None, None)
