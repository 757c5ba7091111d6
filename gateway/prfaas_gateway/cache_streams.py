"""Follow the caches of all prefill nodes that tell of them: a stream from each one's agent.

A stream that broke goes on where it ended; a gateway that was started anew, or was away for too
long, gets a snapshot first.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from prfaas.cache_events.feed_batch import (
    MAX_FEED_LINE_BYTES,
    decode_feed_batch,
    decode_feed_shape,
)
from prfaas.records import NodeRecord, Role
from prfaas_coord.companion import Companion
from prfaas_gateway.cache_book import CacheBook
from prfaas_gateway.fleet import View

logger = logging.getLogger(__name__)

LOOK_S = 0.2
SILENCE_S = 5.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_LAST_S = 5.0
_CONNECT_TIMEOUT_S = 2.0
_LONG_LINE_BYTES = 64 << 10

Tls = Callable[[], ssl.SSLContext]
_Target = tuple[str, str, str]  # name, agent's URL, session


class CacheStreams:
    """Writes what it hears into a `CacheBook`. `tls` gives the context for agents, None: none."""

    def __init__(
        self, view: View, book: CacheBook, session: aiohttp.ClientSession, tls: Tls | None
    ) -> None:
        self._view = view
        self._book = book
        self._session = session
        self._tls = tls
        self._streams: dict[_Target, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Start and end streams as nodes come and go, until cancelled."""
        known = None
        async with asyncio.TaskGroup() as group:
            while True:
                nodes = self._view.nodes
                if nodes is not known:
                    known = nodes
                    self._adjust(group, {_target(n): n for n in nodes.values() if _tells(n)})
                await asyncio.sleep(LOOK_S)

    def _adjust(self, group: asyncio.TaskGroup, wanted: dict[_Target, NodeRecord]) -> None:
        for target in [target for target in self._streams if target not in wanted]:
            self._streams.pop(target).cancel()
        self._book.retain(name for name, _, _ in wanted)
        for target in wanted.keys() - self._streams.keys():
            self._streams[target] = group.create_task(self._follow(wanted[target]))

    async def _follow(self, node: NodeRecord) -> None:
        """Listen to one agent, and again whenever that ends, until cancelled."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                await self._listen(node)
                problem = "the stream ended"
            except Exception as error:
                # A stream's outermost frame: whatever an agent says must not end the gateway.
                problem = f"{type(error).__name__}: {error}"
            logger.debug("cache of %s: %s", node.name, problem)
            if asyncio.get_running_loop().time() - began_s >= SILENCE_S:
                backoff_s = _BACKOFF_FIRST_S
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            backoff_s = min(2 * backoff_s, _BACKOFF_LAST_S)

    async def _listen(self, node: NodeRecord) -> None:
        """Take every line until the stream ends.

        Raises: ClientError, TimeoutError, ValueError, ProtocolError.
        """
        session, seq = self._book.cursor(node)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=SILENCE_S
        )
        async with self._session.get(
            f"{node.agent_url}/cache",
            params={"session": session, "seq": str(seq)},
            timeout=timeout,
            ssl=True if self._tls is None else self._tls(),
            allow_redirects=False,
            read_bufsize=MAX_FEED_LINE_BYTES,
        ) as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            self._book.begin(node, decode_feed_shape(await response.content.readline()))
            while line := await response.content.readline():
                if line != b"\n":
                    await self._take(node, line)

    async def _take(self, node: NodeRecord, line: bytes) -> None:
        if len(line) > _LONG_LINE_BYTES:
            batch = await asyncio.to_thread(decode_feed_batch, line)
        else:
            batch = decode_feed_batch(line)
        self._book.note(node, batch)


@asynccontextmanager
async def following_caches(streams: CacheStreams) -> AsyncIterator[None]:
    """Follow while the context lasts."""
    companion = Companion()
    await companion.start(streams.run(), name="caches")
    try:
        yield
    finally:
        await companion.stop(None, None)


def _tells(node: NodeRecord) -> bool:
    return node.role is Role.PREFILL and node.cache_feed and bool(node.agent_url)


def _target(node: NodeRecord) -> _Target:
    return node.name, node.agent_url, node.session
