"""A trace: what users asked for and when, in arrays that stay small for a million requests."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.workload.chain import Chain
from prfaas.workload.lengths import EmpiricalLengths, Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in the order of their arrival.

    Per request: `arrival_s` (the first is 0), `prompt_tokens`, `output_tokens` and `tenant`, an
    index into `tenant_names`. Blocks of request i are
    `block_hashes[block_offsets[i]:block_offsets[i + 1]]`, each of block_tokens tokens, the last
    perhaps of fewer; a hash names its block and all before it. A trace without blocks has
    block_tokens 0 and no hashes.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    block_hashes: Ints
    block_offsets: Ints
    block_tokens: int
    tenant: NDArray[np.int32]
    tenant_names: tuple[str, ...]

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        columns = (self.prompt_tokens, self.output_tokens, self.tenant, self.block_offsets[1:])
        if not count or any(len(column) != count for column in columns):
            raise ConfigError("a trace needs one request at least, and columns of equal length")
        if self.block_offsets[-1] != len(self.block_hashes):
            raise ConfigError("block_offsets: must end at the number of block_hashes")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @property
    def rate_per_s(self) -> float:
        """Mean requests per second; 0 where all came at once."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else 0.0

    @property
    def prompt_lengths(self) -> EmpiricalLengths:
        """Distribution of whole prompts, cached or not."""
        return EmpiricalLengths(self.prompt_tokens)

    def chains(self) -> Iterator[Chain]:
        """Yield each request's chain: one pair for each of its full blocks.

        A last block that is not full is left out: only full blocks are reused.
        """
        bounds = self.block_offsets.tolist()
        ends = range(self.block_tokens, int(self.prompt_tokens.max()) + 1, self.block_tokens or 1)
        for index, prompt_tokens in enumerate(self.prompt_tokens.tolist()):
            full = prompt_tokens // self.block_tokens if self.block_tokens else 0
            hashes = self.block_hashes[bounds[index] : bounds[index + 1]].tolist()[:full]
            yield tuple(zip(hashes, ends, strict=False))
