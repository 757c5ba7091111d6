"""Which prompt prefixes one prefill node is believed to hold."""

from collections import OrderedDict

from prfaas.blocks.prompt import BLOCK_TOKENS, HashedPrompt

DEFAULT_MAX_BLOCKS = 1 << 16

_MAX_CHECKPOINTS_PER_BLOCK = 128


class PrefixIndex:
    """The blocks and state checkpoints that a node's past prompts left in its cache.

    For a model with paged KV only, a hit ends at any known block, down to a multiple of
    `page_tokens`. For a `stateful` model it ends only where a state was kept: at the end of an
    earlier prompt, and every `checkpoint_tokens` of what that prompt had to compute (0: nowhere
    else). At most n-1 of n tokens can be a hit. Holds `max_blocks` blocks; the least recently
    used go first, the tail of a prompt before its head.

    Source: sglang 0.5.23, unified radix cache with the `no_buffer` strategy.
    """

    def __init__(
        self,
        *,
        stateful: bool = False,
        checkpoint_tokens: int = 0,
        page_tokens: int = 1,
        max_blocks: int = DEFAULT_MAX_BLOCKS,
    ) -> None:
        self._stateful = stateful
        self._checkpoint_tokens = checkpoint_tokens
        self._page_tokens = max(1, page_tokens)
        self._max_blocks = max_blocks
        # Block hash -> {checkpoint position: hash of the tail between block end and position}.
        self._blocks: OrderedDict[int, dict[int, set[int]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def clear(self) -> None:
        """Forget everything, as the node's cache did when it restarted."""
        self._blocks.clear()

    def match(self, prompt: HashedPrompt) -> int:
        """Return how many leading tokens of the prompt the node need not compute."""
        limit = prompt.num_tokens - 1
        known = self._count_known(prompt)
        if not self._stateful:
            hit = min(known * BLOCK_TOKENS, limit)
            return max(0, hit - hit % self._page_tokens)
        for blocks in range(known, -1, -1):
            position = self._best_checkpoint(prompt, blocks, limit)
            if position:
                return position
        return 0

    def insert(self, prompt: HashedPrompt) -> None:
        """Record that the node has computed the whole prompt."""
        if not prompt.num_tokens:
            return
        hit = self.match(prompt) if self._stateful else 0
        # Tail first, so that the head of the prompt is used last and evicted last.
        for block_hash in reversed(prompt.block_hashes):
            self._touch(block_hash)
        self._touch(prompt.root)
        if self._stateful:
            for position in self._checkpoint_positions(prompt.num_tokens, hit):
                self._add_checkpoint(prompt, position)
        while len(self._blocks) > self._max_blocks:
            self._blocks.popitem(last=False)

    def _touch(self, block_hash: int) -> None:
        self._blocks.setdefault(block_hash, {})
        self._blocks.move_to_end(block_hash)

    def _count_known(self, prompt: HashedPrompt) -> int:
        known = 0
        for block_hash in prompt.block_hashes:
            if block_hash not in self._blocks:
                break
            known += 1
        return known

    def _checkpoint_positions(self, num_tokens: int, hit: int) -> list[int]:
        step = self._checkpoint_tokens
        grid = list(range(hit + step, num_tokens, step)) if step else []
        return [*grid, num_tokens]

    def _add_checkpoint(self, prompt: HashedPrompt, position: int) -> None:
        block_hash, tail_hash = prompt.hash_at(position)
        checkpoints = self._blocks[block_hash]
        tails = checkpoints.setdefault(position, set())
        tails.add(tail_hash)
        if sum(len(known) for known in checkpoints.values()) > _MAX_CHECKPOINTS_PER_BLOCK:
            oldest = next(iter(checkpoints))
            del checkpoints[oldest]

    def _best_checkpoint(self, prompt: HashedPrompt, blocks: int, limit: int) -> int:
        block_hash = prompt.block_hashes[blocks - 1] if blocks else prompt.root
        best = 0
        for position, tails in self._blocks.get(block_hash, {}).items():
            if best < position <= limit and prompt.hash_at(position)[1] in tails:
                best = position
        return best
