"""Prefix hits: how much of each prompt is left to compute, given what earlier prompts left cached.

Prompts hit what came before them in the order of arrival, as if each were computed at once; what
decodes add to the cache is not counted, since traces do not name the blocks of answers.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from prfaas.errors import ConfigError
from prfaas.workload.chain import Chain
from prfaas.workload.lengths import EmpiricalLengths
from prfaas.workload.trace import Ints, Trace


class Reuse(StrEnum):
    """Where a cached prefix can be taken up.

    Source: PrfaaS §3.2.
    """

    PAGED = "paged"
    """At the end of any cached block: models with full attention only."""
    HYBRID = "hybrid"
    """Only where a state was kept, at the end of an earlier prompt's full blocks."""


class PrefixCache:
    """The prefixes that one cluster or node holds, the least recently used leaving first.

    `capacity_tokens` None is without bound. A hybrid model's states are kept at the end of a
    prompt's chain and at multiples of `checkpoint_tokens` (0: nowhere else); each takes as much
    room as `state_tokens` tokens of KV. Of a prompt its tail leaves before its head, so that what
    is held is always whole prefixes. At most n - 1 of n tokens are a hit: one is computed in any
    case.

    >>> cache = PrefixCache(Reuse.PAGED)
    >>> cache.insert(((7, 512), (8, 1024)))
    >>> cache.lookup(((7, 512), (9, 1024)), 1100)
    512
    """

    def __init__(
        self,
        reuse: Reuse,
        *,
        capacity_tokens: float | None = None,
        state_tokens: int = 0,
        checkpoint_tokens: int = 0,
    ) -> None:
        for field, value in (
            ("capacity_tokens", capacity_tokens or 0),
            ("state_tokens", state_tokens),
            ("checkpoint_tokens", checkpoint_tokens),
        ):
            if value < 0:
                raise ConfigError(f"{field}: {value}: must not be negative")
        self._reuse = reuse
        self._capacity_tokens = capacity_tokens
        self._state_tokens = state_tokens if reuse is Reuse.HYBRID else 0
        self._checkpoint_tokens = checkpoint_tokens
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._reusable: set[int] = set()
        self._used_tokens = 0

    @property
    def used_tokens(self) -> int:
        """What is held, states included, in tokens of KV."""
        return self._used_tokens

    def lookup(self, chain: Chain, prompt_tokens: int) -> int:
        """Return how many leading tokens of the prompt need not be computed."""
        reusable = self._reusable
        if reusable:
            for name, tokens in reversed(chain):
                if name in reusable and tokens < prompt_tokens:
                    return tokens
        return 0

    def insert(self, chain: Chain) -> None:
        """Hold the prompt's prefixes, as most recently used."""
        if not chain or self._capacity_tokens == 0:
            return
        last = len(chain) - 1
        for index in range(last, -1, -1):
            name, tokens = chain[index]
            if name in self._sizes:
                self._sizes.move_to_end(name)
            else:
                size = tokens - (chain[index - 1][1] if index else 0)
                self._sizes[name] = size
                self._used_tokens += size
            if name not in self._reusable and (index == last or self._keeps_state_at(tokens)):
                self._reusable.add(name)
                self._used_tokens += self._state_tokens
                self._on_kept(name)
        if self._capacity_tokens is not None:
            self._evict_to(self._capacity_tokens)

    def _keeps_state_at(self, tokens: int) -> bool:
        if self._reuse is Reuse.PAGED:
            return True
        return bool(self._checkpoint_tokens) and tokens % self._checkpoint_tokens == 0

    def _evict_to(self, limit_tokens: float) -> None:
        while self._used_tokens > limit_tokens:
            name, tokens = self._sizes.popitem(last=False)
            self._used_tokens -= tokens
            if name in self._reusable:
                self._reusable.remove(name)
                self._used_tokens -= self._state_tokens
                self._on_lost(name)

    def _on_kept(self, name: int) -> None:
        """Take note that a prefix can be taken up from now on."""

    def _on_lost(self, name: int) -> None:
        """Take note that it no longer can."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefixHits:
    """What is left of each prompt after its prefix hit, in the order of the requests."""

    prompt_tokens: Ints
    uncached_tokens: Ints

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that need not be computed."""
        return 1 - float(self.uncached_tokens.sum()) / float(self.prompt_tokens.sum())

    @property
    def lengths(self) -> EmpiricalLengths:
        """Distribution of uncached lengths: the planner's L."""
        return EmpiricalLengths(self.uncached_tokens)


def prefix_hits(
    trace: Trace,
    reuse: Reuse,
    *,
    capacity_blocks: int | None = None,
    state_blocks: int = 0,
) -> PrefixHits:
    """Return what prefix hits leave of a trace's prompts.

    One cache serves all requests; it holds `capacity_blocks` of the trace's blocks, and a kept
    state takes the room of `state_blocks`.
    """
    capacity = None if capacity_blocks is None else capacity_blocks * trace.block_tokens
    cache = PrefixCache(
        reuse, capacity_tokens=capacity, state_tokens=state_blocks * trace.block_tokens
    )
    return hits_in(cache, trace.chains(), trace.prompt_tokens)


def hits_in(cache: PrefixCache, chains: Iterable[Chain], prompt_tokens: Ints) -> PrefixHits:
    """Send prompts through the cache, one after the other, and return what hits leave of them."""
    uncached = prompt_tokens.copy()
    for index, (chain, tokens) in enumerate(zip(chains, prompt_tokens.tolist(), strict=True)):
        uncached[index] -= cache.lookup(chain, tokens)
        cache.insert(chain)
    return PrefixHits(prompt_tokens, np.asarray(uncached))
