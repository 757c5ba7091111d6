"""A node's prefix cache as its feed tells it, in a fixed memory: a gateway has one per node."""

from prfaas.blocks.prompt import BLOCK_TOKENS, HashedPrompt
from prfaas.cache_events.feed_batch import FeedBatch, FeedShape
from prfaas.errors import ProtocolError

MAX_BLOCKS = 1 << 18
"""Blocks of one node: 16 million tokens, some 35 MB."""


class NodeCache:
    """Blocks and states by hash. At most n-1 of a prompt's n tokens are a hit.

    Of a `stateful` cache a prefix can be used where a state is; of one with windows where the last
    `window_tokens` have theirs. Beyond `max_blocks` the oldest are forgotten, and never a hit.
    """

    def __init__(self, shape: FeedShape, *, max_blocks: int = MAX_BLOCKS) -> None:
        self.shape = shape
        self.session = ""
        self.seq = 0
        self.is_whole = False
        """Whether all of a snapshot has come."""
        self._max_blocks = max_blocks
        self._blocks: dict[int, None] = {}
        self._states: dict[int, set[tuple[int, int]]] = {}
        self._num_states = 0
        self._windowless: set[int] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def num_states(self) -> int:
        """How many states are there."""
        return self._num_states

    def apply(self, batch: FeedBatch) -> None:
        """Take the next batch.

        Raises:
            ProtocolError: one before it is missing.
        """
        is_next = batch.session == self.session and (
            batch.seq == self.seq + 1 or (not self.is_whole and batch.seq == self.seq)
        )
        if not is_next and not batch.cleared:
            raise ProtocolError(f"cache feed: batch {batch.seq} after {self.seq}")
        if batch.cleared:
            self._clear()
        self._remove(batch)
        self._blocks.update(dict.fromkeys(batch.kept))
        for block, tokens, tail in batch.states:
            self._add_state(block, (tokens, tail))
        self._windowless.update(batch.windowless)
        self.session, self.seq, self.is_whole = batch.session, batch.seq, not batch.more
        self._forget_oldest()

    def match(self, prompt: HashedPrompt) -> int:
        """Return how many leading tokens of the prompt the node need not compute."""
        limit = prompt.num_tokens - 1
        known = 0
        for block in prompt.block_hashes:
            if block not in self._blocks:
                break
            known += 1
        if self.shape.stateful:
            return self._best_state(prompt, known, limit)
        if self.shape.window_tokens:
            known = self._last_windowed(prompt, known)
        hit = min(known * BLOCK_TOKENS, limit)
        return max(0, hit - hit % self.shape.page_tokens)

    def _clear(self) -> None:
        self._blocks.clear()
        self._states.clear()
        self._windowless.clear()
        self._num_states = 0

    def _remove(self, batch: FeedBatch) -> None:
        for block in batch.dropped:
            self._blocks.pop(block, None)
        self._windowless.difference_update(batch.dropped, batch.windowed)
        for block, tokens, tail in batch.gone:
            there = self._states.get(block)
            if there is not None and (tokens, tail) in there:
                there.discard((tokens, tail))
                self._num_states -= 1
                if not there:
                    del self._states[block]

    def _add_state(self, block: int, state: tuple[int, int]) -> None:
        there = self._states.setdefault(block, set())
        self._num_states += state not in there
        there.add(state)

    def _forget_oldest(self) -> None:
        excess = len(self._blocks) - self._max_blocks
        if excess > 0:
            for block in list(self._blocks)[: excess + self._max_blocks // 16]:
                del self._blocks[block]
        while self._num_states > self._max_blocks:
            self._num_states -= len(self._states.pop(next(iter(self._states))))
        while len(self._windowless) > self._max_blocks:
            self._windowless.pop()

    def _best_state(self, prompt: HashedPrompt, known: int, limit: int) -> int:
        for blocks in range(known, -1, -1):
            block = prompt.block_hashes[blocks - 1] if blocks else prompt.root
            there = self._states.get(block)
            if not there:
                continue
            first = blocks * BLOCK_TOKENS
            last = min(first + BLOCK_TOKENS - 1, limit)
            # However many states a node says there are, those of one prompt are a block's at most.
            told = {tokens for tokens, _ in there} if len(there) <= BLOCK_TOKENS else None
            for tokens in range(last, max(first, 1) - 1, -1):
                if told is not None and tokens not in told:
                    continue
                if (tokens, prompt.hash_at(tokens)[1]) in there:
                    return tokens
        return 0

    def _last_windowed(self, prompt: HashedPrompt, known: int) -> int:
        """Return the most blocks after which the window's blocks are all there."""
        needed = -(-self.shape.window_tokens // BLOCK_TOKENS)
        best = streak = 0
        has_gap = False
        for count, block in enumerate(prompt.block_hashes[:known], start=1):
            if block in self._windowless:
                has_gap, streak = True, 0
                continue
            streak += 1
            if not has_gap or streak >= needed:
                best = count
        return best
