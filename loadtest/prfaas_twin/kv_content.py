"""What a twin's KV cache holds, and the tokens that follow from it.

Every item of a prompt's cache is a row of one fixed slab of pseudo-random bytes. Which rows, the
prompt's rolling hashes say: so prompts with a common prefix have the same cache for it, wherever
and whenever it is computed, nothing has to be generated, and a sender's memory is the slab itself.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import xxhash
from numpy.typing import NDArray

from prfaas.blocks import BLOCK_TOKENS, HashedPrompt
from prfaas.transfer.layout import Items
from prfaas_twin.kv_shape import AUX, AUX_BYTES, KV, KvShape

Bytes = NDArray[np.uint8]

_SLAB_BYTES = 8 << 20
_SEED = 0x9E3779B97F4A7C15
_U64 = (1 << 64) - 1
#: Layers see the slab from other rows, so that bytes of the wrong layer are wrong bytes.
_ROWS_APART = 37
_SEGMENT_TOKENS = 16 * BLOCK_TOKENS
_AUX = struct.Struct("<QII16x")
assert _AUX.size == AUX_BYTES


@lru_cache(maxsize=8)
def _slab(num_bytes: int) -> Bytes:
    """Return pseudo-random bytes, the same in every process and with every numpy."""
    return np.random.PCG64(_SEED).random_raw(-(-num_bytes // 8)).view(np.uint8)[:num_bytes]


@dataclass(frozen=True, slots=True)
class Aux:
    """What a decode needs besides the cache: a hash of the prompt it is of, and its hit."""

    prompt_hash: int
    cached_tokens: int
    prompt_tokens: int

    def pack(self) -> bytes:
        """Return the row that crosses."""
        return _AUX.pack(self.prompt_hash, self.cached_tokens, self.prompt_tokens)

    @classmethod
    def unpack(cls, row: bytes) -> "Aux":
        """Return what a row says; any bytes are a row."""
        return cls(*_AUX.unpack(row))


class KvContent:
    """The cache contents of all prompts of one model."""

    def __init__(self, shape: KvShape) -> None:
        self.shape = shape
        self.num_rows = _SLAB_BYTES // shape.item_bytes
        per_group = shape.layers * _ROWS_APART
        rows = self.num_rows + 2 * per_group
        slab = _slab(rows * shape.item_bytes)
        starts = range(0, 2 * per_group, _ROWS_APART)
        views = [
            slab[start * shape.item_bytes : (start + self.num_rows) * shape.item_bytes]
            for start in starts
        ]
        self._kv, self._state = views[: shape.layers], views[shape.layers :]

    def arrays(self) -> dict[str, list[Bytes]]:
        """Return the slab as every layer sees it, by group; `num_rows` items each. Read only."""
        return {KV: self._kv, self.shape.state_group: self._state}

    def kv_rows(self, prompt: HashedPrompt) -> Items:
        """Return the rows of the prompt's KV cache, the same in every layer."""
        parts = []
        done = 0
        for start in range(0, prompt.num_tokens, _SEGMENT_TOKENS):
            end = min(start + _SEGMENT_TOKENS, prompt.num_tokens)
            items = self.shape.kv_items(end)
            parts.append(self._run(_mix(_hash_at(prompt, end)), items - done))
            done = items
        return np.concatenate(parts)

    def state_rows(self, prompt: HashedPrompt) -> Items:
        """Return the rows of the states after the prompt, the same in every layer."""
        return self._run(_mix(_hash_at(prompt, prompt.num_tokens) ^ _SEED), self.shape.state_items)

    def seed(self, prompt: HashedPrompt) -> int:
        """Return the seed that a decode finds which received the prompt's cache whole."""
        layers = [*self._views(self._kv, self.kv_rows(prompt))]
        layers += self._views(self._state, self.state_rows(prompt))
        return seed_of(layers, prompt, prompt_hash(prompt))

    def _run(self, start: int, count: int) -> Items:
        rows: Items = (start % self.num_rows + np.arange(count, dtype=np.int64)) % self.num_rows
        return rows

    def _views(self, arrays: Sequence[Bytes], rows: Items) -> Iterable[memoryview]:
        for array in arrays:
            yield array.reshape(self.num_rows, self.shape.item_bytes)[rows].data


def prompt_hash(prompt: HashedPrompt) -> int:
    """Return the hash of the whole prompt and its namespace."""
    return xxhash.xxh3_64_intdigest(prompt.raw, seed=prompt.root)


def seed_of(parts: Iterable[memoryview], prompt: HashedPrompt, told_hash: int) -> int:
    """Return what all output tokens follow from: every byte of the cache, in order, the prompt,
    and the hash of the prompt that the prefill computed."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return _mix(digest.intdigest() ^ _mix(prompt_hash(prompt)) ^ _mix(told_hash ^ _SEED))


def token_at(seed: int, position: int, choices: Sequence[int]) -> int:
    """Return the output token at a position.

    >>> token_at(7, 0, range(1000)) == token_at(7, 1, range(1000))
    False
    """
    return choices[_mix(seed + position * _SEED) % len(choices)]


def aux_array(rows: int) -> Bytes:
    """Return memory for aux rows."""
    return np.zeros(rows * AUX_BYTES, dtype=np.uint8)


def _hash_at(prompt: HashedPrompt, position: int) -> int:
    block_hash, tail_hash = prompt.hash_at(position)
    return tail_hash if position % BLOCK_TOKENS else block_hash


def _mix(value: int) -> int:
    """Return the value with its bits well mixed. Source: splitmix64."""
    value = (value + _SEED) & _U64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _U64
    return value ^ (value >> 31)


__all__ = ["AUX", "KV", "Aux", "KvContent", "aux_array", "prompt_hash", "seed_of", "token_at"]
