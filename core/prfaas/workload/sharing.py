"""Which prefixes generated prompts share: popular system prompts, and conversations that go on.

Both take the new tokens of each request, as drawn from a distribution of uncached lengths, and put
what is shared in front; with a large enough cache the uncached lengths are the new tokens again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from prfaas.errors import ConfigError
from prfaas.workload.chain import Chain
from prfaas.workload.trace import Ints

MAX_PREFIXES = 1_000_000
MAX_PREFIX_TOKENS = 20_000_000
MAX_MEAN_TURNS = 100
"""A chain has a pair for each turn."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrompts:
    """Prompts in the order of their arrival: whole lengths and chains."""

    prompt_tokens: Ints
    chains: Sequence[Chain]


class Sharing(Protocol):
    """A way in which prompts share prefixes; the same generator state gives the same prompts."""

    def prompts(self, rng: np.random.Generator, new_tokens: Ints) -> SharedPrompts:
        """Return one prompt for each number of new tokens, which must be 1 at least."""


@dataclass(frozen=True, slots=True)
class NoSharing:
    """Every prompt is its own."""

    def prompts(self, rng: np.random.Generator, new_tokens: Ints) -> SharedPrompts:  # noqa: ARG002
        """Return one prompt for each number of new tokens; nothing is drawn."""
        own = enumerate(_checked(new_tokens).tolist())
        return SharedPrompts(new_tokens.copy(), [((name, tokens),) for name, tokens in own])


@dataclass(frozen=True, slots=True)
class SystemPrefixes:
    """Every prompt begins with one of some system prompts, the k-th most popular with 1 / k**zipf.

    `tokens` are their lengths, most popular first.

    >>> shared = SystemPrefixes((100,), zipf=1.0)
    >>> shared.prompts(np.random.default_rng(1), np.array([5, 7])).chains
    [((0, 100), (1, 105)), ((0, 100), (2, 107))]
    """

    tokens: tuple[int, ...]
    zipf: float

    def __post_init__(self) -> None:
        fits = 1 <= len(self.tokens) <= MAX_PREFIXES
        if not fits or not 1 <= min(self.tokens) <= max(self.tokens) <= MAX_PREFIX_TOKENS:
            raise ConfigError(
                f"tokens: 1 to {MAX_PREFIXES} lengths are needed, each from 1 to"
                f" {MAX_PREFIX_TOKENS}"
            )
        if not 0 <= self.zipf <= 10:
            raise ConfigError(f"zipf: {self.zipf}: must be from 0 (all alike) to 10")

    def prompts(self, rng: np.random.Generator, new_tokens: Ints) -> SharedPrompts:
        """Return one prompt for each number of new tokens, which must be 1 at least."""
        weights = np.arange(1, len(self.tokens) + 1, dtype=np.float64) ** -self.zipf
        prefix = rng.choice(
            len(self.tokens), size=len(_checked(new_tokens)), p=weights / weights.sum()
        )
        begins = np.array(self.tokens, dtype=np.int64)[prefix]
        whole = begins + new_tokens
        rows = zip(prefix.tolist(), begins.tolist(), whole.tolist(), strict=True)
        own = len(self.tokens)
        chains = [((name, begin), (own + i, end)) for i, (name, begin, end) in enumerate(rows)]
        return SharedPrompts(whole, chains)


@dataclass(frozen=True, slots=True)
class Conversations:
    """Conversations of `mean_turns` turns on average, `active` of them at a time.

    Each request goes on with a random active conversation: its prompt is all earlier prompts of
    that conversation and the new tokens, in which the last answer is counted. A conversation ends
    with probability 1 / mean_turns after each turn, or before its prompt exceeds max_tokens;
    another begins in its place, with a system prompt where `start` has some.
    """

    mean_turns: float
    active: int
    max_tokens: int
    start: SystemPrefixes | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.mean_turns <= MAX_MEAN_TURNS:
            raise ConfigError(f"mean_turns: {self.mean_turns}: must be from 1 to {MAX_MEAN_TURNS}")
        if not 1 <= self.active <= MAX_PREFIXES:
            raise ConfigError(f"active: {self.active}: must be from 1 to {MAX_PREFIXES}")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens: {self.max_tokens}: must be 1 at least")

    def prompts(self, rng: np.random.Generator, new_tokens: Ints) -> SharedPrompts:
        """Return one prompt for each number of new tokens, which must be 1 at least."""
        first = (self.start or NoSharing()).prompts(rng, new_tokens)
        places = rng.integers(self.active, size=len(new_tokens)).tolist()
        ends = (rng.random(len(new_tokens)) < 1 / self.mean_turns).tolist()
        histories: list[Chain] = [()] * self.active
        chains = []
        for index, tokens in enumerate(new_tokens.tolist()):
            chain = self._turn(histories[places[index]], first.chains[index], tokens)
            histories[places[index]] = () if ends[index] else chain
            chains.append(chain)
        whole = np.array([chain[-1][1] for chain in chains], dtype=np.int64)
        return SharedPrompts(whole, chains)

    def _turn(self, history: Chain, first: Chain, new_tokens: int) -> Chain:
        """Return the history with a turn more, or where there is no room for it, a first turn."""
        if not history or history[-1][1] + new_tokens > self.max_tokens:
            return first
        return (*history, (first[-1][0], history[-1][1] + new_tokens))


def _checked(new_tokens: Ints) -> Ints:
    if np.any(new_tokens < 1):
        raise ConfigError("new_tokens: each must be 1 at least")
    return new_tokens
