"""From an engine's cache events, which have tokens, to the feed for gateways, which has none."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xxhash

from prfaas.blocks.prompt import BLOCK_TOKENS, HashedPrompt
from prfaas.cache_events.events import (
    BlockRemoved,
    BlockStored,
    CacheEvent,
    Cleared,
    StateRemoved,
    StateStored,
    WindowRemoved,
    WindowStored,
)
from prfaas.cache_events.feed_batch import FeedBatch, StateName

MAX_ENGINE_BLOCKS = 1 << 20
"""Of one engine; what it stores beyond is not told of: its oldest blocks are taken for gone."""
KEPT_NAMES = 1 << 19
MAX_BATCH_NAMES = 1 << 14
_BLOCK_BYTES = BLOCK_TOKENS * 4
_T = TypeVar("_T")


class _End(NamedTuple):
    """Where an engine's block ends: after `tail` after the 64-token block `block`.

    `made` are the 64-token blocks that it completed.
    """

    block: int
    tokens: int
    tail: bytes
    made: tuple[int, ...]


class CacheFeed:
    """Follows one engine's cache; numbers what it tells, and keeps the newest for replay.

    `root_of` gives the hash that prompts with a salt begin with, as `HashedPrompt.root`.
    """

    def __init__(
        self,
        session: str,
        *,
        root_of: Callable[[str], int],
        max_engine_blocks: int = MAX_ENGINE_BLOCKS,
        kept_names: int = KEPT_NAMES,
    ) -> None:
        self.session = session
        self.seq = 0
        self.orphans = 0
        """Blocks whose parent is not known."""
        self._root_of = root_of
        self._max = max_engine_blocks
        self._ends: dict[int, _End] = {}
        self._states: dict[int, StateName] = {}
        self._windowless: set[int] = set()
        #: How many pages of more than 64 tokens have a 64-token block that is not their last.
        self._shared: Counter[int] = Counter()
        self._log: deque[FeedBatch] = deque()
        self._log_names = 0
        self._log_limit = kept_names

    def __len__(self) -> int:
        return len(self._ends)

    def apply(self, events: Iterable[CacheEvent]) -> None:
        """Take events that happened together."""
        for event in events:
            for batch in self._changes(event):
                self._append(batch)
        while len(self._ends) > self._max:
            excess = list(self._ends)[: max(len(self._ends) - self._max, self._max // 16)]
            for batch in self._changes(BlockRemoved(tuple(excess))):
                self._append(batch)

    def since(self, session: str, seq: int) -> list[FeedBatch] | None:
        """Return the batches after a reader's last; None if it needs a snapshot."""
        if session != self.session or seq > self.seq or self.seq - seq > len(self._log):
            return None
        return [self._log[at] for at in range(len(self._log) - (self.seq - seq), len(self._log))]

    def snapshot(self) -> list[FeedBatch]:
        """Return batches that lead a reader from nothing to now; none of them is sent twice."""
        kept = _batched((b for end in self._ends.values() for b in end.made), MAX_BATCH_NAMES)
        states = _batched(self._states.values(), MAX_BATCH_NAMES // 4)
        windowless = _batched(self._windowless, MAX_BATCH_NAMES)
        empty: tuple[Any, ...] = ()
        parts: list[tuple[Any, ...]] = list(
            zip_longest(kept, states, windowless, fillvalue=empty)
        ) or [(empty, empty, empty)]
        return [
            FeedBatch(
                self.session,
                self.seq,
                cleared=number == 0,
                kept=blocks,
                states=at,
                windowless=bare,
                more=number + 1 < len(parts),
            )
            for number, (blocks, at, bare) in enumerate(parts)
        ]

    def _append(self, changes: dict[str, Any]) -> None:
        self.seq += 1
        batch = FeedBatch(self.session, self.seq, **changes)
        self._log.append(batch)
        self._log_names += batch.size
        while self._log_names > self._log_limit and len(self._log) > 1:
            self._log_names -= self._log.popleft().size

    def _changes(self, event: CacheEvent) -> Iterator[dict[str, Any]]:
        match event:
            case Cleared():
                for held in (self._ends, self._states, self._windowless, self._shared):
                    held.clear()
                yield {"cleared": True}
            case BlockStored():
                yield from _cut("kept", self._store(event))
            case BlockRemoved():
                made = self._remove(event.hashes)
                self._windowless.difference_update(made)
                yield from _cut("gone", self._forget_states(event.hashes))
                yield from _cut("dropped", made)
            case StateStored():
                yield from _cut("states", self._store_states(event.hashes))
            case StateRemoved():
                yield from _cut("gone", self._forget_states(event.hashes))
            case WindowRemoved():
                bare = [b for b in self._made(event.hashes) if b not in self._windowless]
                self._windowless.update(bare)
                yield from _cut("windowless", bare)
            case WindowStored():
                back = [b for b in self._made(event.hashes) if b in self._windowless]
                self._windowless.difference_update(back)
                yield from _cut("windowed", back)

    def _store(self, event: BlockStored) -> list[int]:
        """Note an engine's blocks; return the 64-token blocks that are complete with them."""
        if event.parent is None:
            block, tokens, tail = self._root_of(event.salt), 0, b""
        elif (end := self._ends.get(event.parent)) is not None:
            block, tokens, tail, _ = end
        else:
            self.orphans += len(event.hashes)
            return []
        raw = np.asarray(event.tokens, dtype="<u4").tobytes()
        size = len(raw) // len(event.hashes)
        complete: list[int] = []
        for number, name in enumerate(event.hashes):
            tail += raw[number * size : (number + 1) * size]
            tokens += size // 4
            made: list[int] = []
            while len(tail) >= _BLOCK_BYTES:
                block = xxhash.xxh3_64_intdigest(tail[:_BLOCK_BYTES], seed=block)
                tail = tail[_BLOCK_BYTES:]
                made.append(block)
            if name not in self._ends:
                self._shared.update(made[:-1])
            self._ends[name] = _End(block, tokens, tail, tuple(made))
            complete += made
        return complete

    def _remove(self, names: Iterable[int]) -> list[int]:
        """Forget an engine's blocks; return the 64-token blocks that went with them."""
        gone: list[int] = []
        for name in names:
            end = self._ends.pop(name, None)
            if end is None:
                continue
            for block in end.made[:-1]:
                self._shared[block] -= 1
                if not self._shared[block]:
                    del self._shared[block]
                    gone.append(block)
            gone += end.made[-1:]
        return gone

    def _store_states(self, names: Iterable[int]) -> list[StateName]:
        found = []
        for name in names:
            end = self._ends.get(name)
            if end is not None:
                tail = xxhash.xxh3_64_intdigest(end.tail, seed=end.block)
                self._states[name] = end.block, end.tokens, tail
                found.append(self._states[name])
        return found

    def _forget_states(self, names: Iterable[int]) -> list[StateName]:
        popped = (self._states.pop(name, None) for name in names)
        return [state for state in popped if state is not None]

    def _made(self, names: Iterable[int]) -> list[int]:
        ends = (self._ends.get(name) for name in names)
        return [block for end in ends if end is not None for block in end.made]


def root_of_model(model_id: str) -> Callable[[str], int]:
    """Return what gives the root of a salt for the prompts of a model, as gateways hash them."""
    return lambda salt: HashedPrompt.of((), namespace=f"{model_id}\0{salt}\0").root


def _cut(key: str, names: list[Any]) -> Iterator[dict[str, Any]]:
    for part in _batched(names, MAX_BATCH_NAMES // 4):
        yield {key: part}


def _batched(items: Iterable[_T], size: int) -> Iterator[tuple[_T, ...]]:
    left = iter(items)
    while part := tuple(islice(left, size)):
        yield part
