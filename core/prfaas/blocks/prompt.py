"""A prompt as hashed blocks of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xxhash

BLOCK_TOKENS = 64
"""Tokens per block of the prefix index."""

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class HashedPrompt:
    """A prompt with one rolling hash per full block; `raw` is its tokens, 4 bytes each.

    A hash covers the namespace and all tokens up to the end of its block, so equal hashes at one
    position mean equal prefixes. It is the same in every process.
    """

    num_tokens: int
    raw: bytes
    root: int
    block_hashes: tuple[int, ...]

    @classmethod
    def of(cls, tokens: "Sequence[int] | np.ndarray[Any, Any]", *, namespace: str = "") -> Self:
        """Hash a prompt; `namespace` keeps apart what must not share a cache (model, salt).

        >>> HashedPrompt.of(range(130)).block_hashes == HashedPrompt.of(range(128)).block_hashes
        True
        """
        raw = np.asarray(tokens, dtype="<u4").tobytes()
        root = xxhash.xxh3_64_intdigest(namespace.encode())
        num_tokens = len(raw) // _TOKEN_BYTES
        return cls(num_tokens, raw, root, _chain(raw, root, num_tokens // BLOCK_TOKENS))

    def first(self, num_tokens: int) -> "HashedPrompt":
        """Return the prompt's first tokens.

        >>> HashedPrompt.of(range(130)).first(70) == HashedPrompt.of(range(70))
        True
        """
        assert 0 <= num_tokens <= self.num_tokens
        hashes = self.block_hashes[: num_tokens // BLOCK_TOKENS]
        return HashedPrompt(num_tokens, self.raw[: num_tokens * _TOKEN_BYTES], self.root, hashes)

    def hash_at(self, position: int) -> tuple[int, int]:
        """Return the hash of the last full block before `position` and that of the tail after it.

        >>> prompt = HashedPrompt.of(range(100))
        >>> prompt.hash_at(64)[0] == prompt.block_hashes[0]
        True
        """
        assert 0 <= position <= self.num_tokens
        blocks, tail = divmod(position, BLOCK_TOKENS)
        block_hash = self.block_hashes[blocks - 1] if blocks else self.root
        start = (position - tail) * _TOKEN_BYTES
        tail_bytes = self.raw[start : position * _TOKEN_BYTES]
        return block_hash, xxhash.xxh3_64_intdigest(tail_bytes, seed=block_hash)


def _chain(raw: bytes, root: int, num_blocks: int) -> tuple[int, ...]:
    step = BLOCK_TOKENS * _TOKEN_BYTES
    hashes = []
    parent = root
    for start in range(0, num_blocks * step, step):
        parent = xxhash.xxh3_64_intdigest(raw[start : start + step], seed=parent)
        hashes.append(parent)
    return tuple(hashes)
