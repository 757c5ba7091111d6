"""A node that tells more of its cache than there can be costs a gateway no more than another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from prfaas.blocks.prompt import HashedPrompt
from prfaas.cache_events.feed_batch import (
    FeedBatch,
    FeedShape,
    encode_feed_batch,
    encode_feed_shape,
)
from prfaas.cache_events.node_cache import NodeCache
from prfaas.records import NodeRecord, Role
from prfaas_gateway.cache_book import CacheBook
from prfaas_gateway.cache_streams import CacheStreams

PROMPT = HashedPrompt.of(range(10_000))
NODE = NodeRecord("a-prefill-0", Role.PREFILL, "a", "http://127.0.0.1:1", "s")


def test_states_without_end_after_one_block_are_looked_up_and_not_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = NodeCache(FeedShape(stateful=True))
    true = (PROMPT.root, 40, PROMPT.hash_at(40)[1])
    lies = tuple((PROMPT.root, tokens, tokens) for tokens in range(1, 9_000))
    cache.apply(FeedBatch("s", 1, cleared=True, states=(*lies, true)))
    hashed: list[int] = []
    hash_at = HashedPrompt.hash_at
    monkeypatch.setattr(
        HashedPrompt, "hash_at", lambda self, n: (hashed.append(n), hash_at(self, n))[1]
    )
    assert cache.match(PROMPT) == 40
    assert len(hashed) <= 64


class FullStream:
    """A stream of which all has come already."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    async def readline(self) -> bytes:
        return self.lines.pop(0) if self.lines else b""


async def test_a_feed_that_never_pauses_lets_others_have_their_turn() -> None:
    empty = encode_feed_batch(FeedBatch("s", 1, cleared=True))
    stream = FullStream([encode_feed_shape(FeedShape()), *[empty, b"\n"] * 500])

    class Streams(CacheStreams):
        @asynccontextmanager
        async def _opened(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            yield stream

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.ensure_future(others())
    streams: Any = Streams
    await streams(None, CacheBook(), None, None)._listen(NODE)
    waiting.cancel()
    assert not stream.lines
    assert turns >= 1000
