"""Follow the caches of all prefill nodes that tell of them: a stream from each one's agent.

A stream that broke goes on where it ended; a gateway that was started anew, or was away for too
long, gets a snapshot first.
"""

import asyncio
from collections.abc import Iterable

import aiohttp

from prfaas.cache_events.feed_batch import (
    MAX_FEED_LINE_BYTES,
    decode_feed_batch,
    decode_feed_shape,
)
from prfaas.records import NodeRecord, Role
from prfaas_gateway.cache_book import CacheBook
from prfaas_gateway.fleet import View
from prfaas_gateway.node_streams import NodeStreams, Tls

_LONG_LINE_BYTES = 64 << 10


class CacheStreams(NodeStreams):
    """Writes what it hears into a `CacheBook`."""

    what = "cache"
    silence_s = 5.0
    backoff_s = 5.0

    def __init__(
        self, view: View, book: CacheBook, session: aiohttp.ClientSession, tls: Tls | None
    ) -> None:
        super().__init__(view, session, tls)
        self._book = book

    def _is_followed(self, node: NodeRecord) -> bool:
        return node.role is Role.PREFILL and node.cache_feed and bool(node.agent_url)

    def _retain(self, names: Iterable[str]) -> None:
        self._book.retain(names)

    async def _listen(self, node: NodeRecord) -> None:
        session, seq = self._book.cursor(node)
        async with self._opened(
            f"{node.agent_url}/cache",
            params={"session": session, "seq": str(seq)},
            longest_line_bytes=MAX_FEED_LINE_BYTES,
        ) as stream:
            self._book.begin(node, decode_feed_shape(await stream.readline()))
            while line := await stream.readline():
                if line != b"\n":
                    await self._take(node, line)
                await asyncio.sleep(0)  # lines without end come without any waiting

    async def _take(self, node: NodeRecord, line: bytes) -> None:
        if len(line) > _LONG_LINE_BYTES:
            batch = await asyncio.to_thread(decode_feed_batch, line)
        else:
            batch = decode_feed_batch(line)
        self._book.note(node, batch)
