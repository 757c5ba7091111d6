"""What a gateway knows by a node's feed is what the engine's cache holds, in bounded memory."""

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prfaas.blocks import HashedPrompt
from prfaas.cache_events import (
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheMirror,
    CacheShape,
    Cleared,
    StateRemoved,
    StateStored,
)
from prfaas.cache_events.feed import CacheFeed, root_of_model
from prfaas.cache_events.feed_batch import (
    FeedBatch,
    FeedShape,
    decode_feed_batch,
    decode_feed_shape,
    encode_feed_batch,
    encode_feed_shape,
)
from prfaas.cache_events.node_cache import NodeCache
from prfaas.errors import ProtocolError

MODEL = "m"


class Engine:
    """A random cache of short alphabets, so that prompts share prefixes; tells what it does."""

    def __init__(self, seed: int, *, page: int, stateful: bool) -> None:
        self.rng = random.Random(seed)
        self.page = page
        self.stateful = stateful
        self.names: dict[tuple[int, ...], int] = {}
        self.children: dict[int | None, set[int]] = {None: set()}
        self.parent: dict[int, int | None] = {}
        self.states: set[int] = set()

    def prompt(self) -> list[int]:
        """Return a prompt of some runs, each of one of two tokens."""
        runs = [[self.rng.randrange(2)] * self.rng.choice((16, 64, 100)) for _ in range(4)]
        return [token for run in runs for token in run][: self.rng.randrange(1, 330)]

    def step(self) -> list[CacheEvent]:
        """Do something, and return the events."""
        choice = self.rng.random()
        if choice < 0.02:
            self.__init__(self.rng.random(), page=self.page, stateful=self.stateful)  # type: ignore[misc, arg-type]
            return [Cleared()]
        if choice < 0.6:
            return self._insert(self.prompt())
        if choice < 0.75 and self.states:
            name = self.rng.choice(sorted(self.states))
            self.states.discard(name)
            return [StateRemoved((name,))]
        leaves = sorted(name for name in self.parent if not self.children[name])
        if not leaves:
            return []
        leaf = self.rng.choice(leaves)
        parent = self.parent.pop(leaf)
        self.children[parent].discard(leaf)
        del self.children[leaf]
        self.names = {tokens: name for tokens, name in self.names.items() if name != leaf}
        events: list[CacheEvent] = [BlockRemoved((leaf,))]
        if leaf in self.states:
            self.states.discard(leaf)
            events.insert(0, StateRemoved((leaf,)))
        return events

    def _insert(self, prompt: list[int]) -> list[CacheEvent]:
        events: list[CacheEvent] = []
        parent: int | None = None
        for end in range(self.page, len(prompt) + 1, self.page):
            tokens = tuple(prompt[:end])
            name = self.names.get(tokens)
            if name is None:
                name = self.names[tokens] = self.rng.getrandbits(62)
                self.parent[name] = parent
                self.children[name] = set()
                self.children[parent].add(name)
                events.append(BlockStored((name,), tuple(prompt[end - self.page : end]), parent))
            parent = name
        if self.stateful and parent is not None and parent not in self.states:
            self.states.add(parent)
            events.append(StateStored((parent,)))
        return events


def follow(cache: NodeCache, batches: list[FeedBatch]) -> None:
    for batch in batches:
        cache.apply(decode_feed_batch(encode_feed_batch(batch)))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    page=st.sampled_from([1, 16, 64, 128]),
    stateful=st.booleans(),
    lost=st.floats(0, 0.5),
)
def test_a_reader_that_comes_and_goes_knows_what_the_engine_reuses(
    seed: int, page: int, stateful: bool, lost: float
) -> None:
    engine = Engine(seed, page=page, stateful=stateful)
    mirror = CacheMirror(CacheShape(block_tokens=page, stateful=stateful))
    feed = CacheFeed("s", root_of=root_of_model(MODEL), kept_names=40)
    shape = decode_feed_shape(encode_feed_shape(FeedShape(stateful=stateful, page_tokens=page)))
    cache = NodeCache(shape)
    for _ in range(50):
        events = engine.step()
        for event in events:
            mirror.apply(event)
        feed.apply(events)
        if engine.rng.random() < lost:
            continue  # the reader is away
        batches = feed.since(cache.session, cache.seq)
        follow(cache, feed.snapshot() if batches is None else batches)
        prompt = engine.prompt()
        hashed = HashedPrompt.of(prompt, namespace=f"{MODEL}\0\0")
        reusable = mirror.reusable_tokens(prompt)
        if stateful:
            assert cache.match(hashed) == reusable
        else:  # whole blocks of 64 tokens count
            assert reusable - 64 < cache.match(hashed) <= reusable
        assert cache.match(HashedPrompt.of(prompt, namespace=f"{MODEL}\0salt\0")) == 0


def test_a_missing_batch_is_noticed() -> None:
    cache = NodeCache(FeedShape())
    with pytest.raises(ProtocolError, match="batch 1 after 0"):
        cache.apply(FeedBatch("s", 1, kept=(1,)))
    cache.apply(FeedBatch("s", 4, cleared=True))
    cache.apply(FeedBatch("s", 5, kept=(1,)))
    for session, seq in (("s", 7), ("s", 5), ("t", 6)):
        with pytest.raises(ProtocolError):
            cache.apply(FeedBatch(session, seq, kept=(2,)))


def test_memory_is_bounded_at_both_ends_and_what_is_forgotten_is_no_hit() -> None:
    """Eight times as many pass; a gateway needs less than 150 bytes for each that it may keep."""
    limit = 1 << 14
    feed = CacheFeed("s", root_of=root_of_model(MODEL), max_engine_blocks=limit, kept_names=limit)
    tracemalloc.start()
    try:
        cache = NodeCache(FeedShape(stateful=True), max_blocks=limit)
        follow(cache, feed.snapshot())
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1 << 15):
            batch = FeedBatch("s", number + 1, kept=tuple(range(number * 4, number * 4 + 4)))
            cache.apply(batch)
        cache.apply(
            FeedBatch("s", cache.seq + 1, states=tuple((n, 64, 1) for n in range(limit * 4)))
        )
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cache) <= limit
    assert cache.num_states <= limit
    assert after - before < limit * (150 + 500)
    tokens = np.arange(64 * 100)
    for number in range(200):
        stored = BlockStored(
            tuple(range(number * 100, number * 100 + 100)),
            tuple(int(token) + number for token in tokens),
        )
        feed.apply([stored])
    assert len(feed) <= limit
    fresh = NodeCache(FeedShape(), max_blocks=limit)
    follow(fresh, feed.snapshot())
    newest, oldest = (
        HashedPrompt.of(tokens + number, namespace=f"{MODEL}\0\0") for number in (199, 0)
    )
    assert fresh.match(newest) > 6000
    assert fresh.match(oldest) == 0


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"session": "s", "kept": [-1]}',
        b'{"session": "s", "kept": [18446744073709551616]}',
        b'{"session": "s", "states": [[1, 2]]}',
        b'{"session": "s", "states": [1]}',
        b'{"session": "s", "cleared": 1}',
        b'{"session": "s", "kept": 1}',
    ],
)
def test_what_is_no_batch_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_feed_batch(line)
