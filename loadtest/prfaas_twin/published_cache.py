"""A prefix cache that tells of every change: what a twin has where cache events are on.

Reuses by whole blocks, as events can name nothing smaller: a state at the end of a prompt counts
where its last whole block ends.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from prfaas.blocks import BLOCK_TOKENS, HashedPrompt
from prfaas.cache_events import (
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheShape,
    Cleared,
    StateRemoved,
    StateStored,
)

Publish = Callable[[Sequence[CacheEvent]], None]


class PublishedCache:
    """Blocks and states; the least recently used go first, the tail of a prompt before its head.

    A `stateful` cache keeps a state every `checkpoint_tokens` of what it computed (rounded to
    blocks; 0: nowhere) and after a prompt's last whole block. At most n-1 of n tokens are a hit.
    `root` is that of prompts without a salt; to readers, others have a salt that no client sends.
    """

    def __init__(
        self,
        publish: Publish,
        *,
        shape: CacheShape,
        root: int,
        checkpoint_tokens: int,
        max_blocks: int,
    ) -> None:
        self.shape = shape
        self._publish = publish
        self._root = root
        self._checkpoint_blocks = checkpoint_tokens // BLOCK_TOKENS
        self._max_blocks = max_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._states: set[int] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, prompt: HashedPrompt) -> int:
        """Return how many leading tokens of the prompt need not be computed."""
        return self._hit_blocks(prompt) * BLOCK_TOKENS

    def insert(self, prompt: HashedPrompt) -> None:
        """Keep a prompt that was computed."""
        hashes = prompt.block_hashes
        hit = self._hit_blocks(prompt)
        known = next((i for i, name in enumerate(hashes) if name not in self._blocks), len(hashes))
        for name in reversed(hashes):
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        events: list[CacheEvent] = []
        if known < len(hashes):
            events.append(self._stored(prompt, known))
        if self.shape.stateful and hashes:
            ends = {len(hashes)}
            if self._checkpoint_blocks:
                step = self._checkpoint_blocks
                ends.update(range(hit + step, len(hashes), step))
            new = [name for end in sorted(ends) if (name := hashes[end - 1]) not in self._states]
            if new:
                self._states.update(new)
                events.append(StateStored(tuple(map(_signed, new))))
        events.extend(self._evicted())
        if events:
            self._publish(events)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self._states.clear()
        self._publish([Cleared()])

    def _hit_blocks(self, prompt: HashedPrompt) -> int:
        best = 0
        limit = (prompt.num_tokens - 1) // BLOCK_TOKENS
        for count, name in enumerate(prompt.block_hashes[:limit], start=1):
            if name not in self._blocks:
                break
            if not self.shape.stateful or name in self._states:
                best = count
        return best

    def _stored(self, prompt: HashedPrompt, first: int) -> BlockStored:
        """Return the event that tells of a prompt's blocks from `first` on."""
        hashes = prompt.block_hashes
        tokens = np.frombuffer(prompt.raw, dtype="<u4")
        return BlockStored(
            hashes=tuple(map(_signed, hashes[first:])),
            tokens=tuple(tokens[first * BLOCK_TOKENS : len(hashes) * BLOCK_TOKENS].tolist()),
            parent=_signed(hashes[first - 1]) if first else None,
            salt="" if prompt.root == self._root else f"{prompt.root:016x}",
        )

    def _evicted(self) -> list[CacheEvent]:
        gone = []
        while len(self._blocks) > self._max_blocks:
            gone.append(self._blocks.popitem(last=False)[0])
        states = self._states.intersection(gone)
        self._states -= states
        events: list[CacheEvent] = []
        if states:
            events.append(StateRemoved(tuple(map(_signed, states))))
        if gone:
            events.append(BlockRemoved(tuple(map(_signed, gone))))
        return events


def _signed(name: int) -> int:
    """Return a hash as events have it: a signed 64-bit number.

    >>> _signed(1 << 63) == -(1 << 63)
    True
    """
    return name - (1 << 64) if name >= 1 << 63 else name
