"""Workloads to simulate: drawn from distributions by a seed, or replayed from a trace."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.sim.scenario import Workload
from prfaas.workload.arrivals import Arrivals, Replay
from prfaas.workload.lengths import Lengths
from prfaas.workload.sharing import Sharing
from prfaas.workload.trace import Trace

MAX_REQUESTS = 10_000_000
MAX_SEED = 2**63 - 1

_MOST_TOKENS = 1e9


class Outputs(Protocol):
    """How many tokens answers have."""

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw numbers of tokens, 1 at least."""


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    """Every answer as long as the next: what equation 5 takes.

    >>> ConstantOutput(3.6).sample(np.random.default_rng(1), 2)
    array([4, 4])
    """

    tokens: float

    def __post_init__(self) -> None:
        _check_tokens(self.tokens)

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:  # noqa: ARG002
        """Return the same number for all; nothing is drawn."""
        return np.full(count, round(self.tokens), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class GeometricOutput:
    """Answers that end after each token with the same probability."""

    mean_tokens: float

    def __post_init__(self) -> None:
        _check_tokens(self.mean_tokens)

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw numbers of tokens, 1 at least."""
        return rng.geometric(1 / self.mean_tokens, count)


def generate(
    lengths: Lengths,
    arrivals: Arrivals,
    outputs: Outputs,
    *,
    count: int,
    seed: int,
    sharing: Sharing | None = None,
) -> Workload:
    """Return so many requests. What is drawn for each is the same under any process of arrivals.

    `lengths` are of the tokens that a prompt does not share.

    Raises:
        ConfigError: count or seed is out of range.
    """
    _check_count(count)
    # Streams of their own: another rate or process leaves the requests as they are.
    when, prompt, output, shared = _streams(seed)
    new_tokens = lengths.sample(prompt, count)
    prompts = sharing.prompts(shared, new_tokens) if sharing else None
    return Workload(
        arrival_s=arrivals.times(when, count),
        prompt_tokens=new_tokens if prompts is None else prompts.prompt_tokens,
        output_tokens=outputs.sample(output, count),
        chains=() if prompts is None else tuple(prompts.chains),
    )


def replay(
    trace: Trace, *, speed: float = 1.0, count: int | None = None, chains: bool = True
) -> Workload:
    """Return the first requests of a trace (all of them), `speed` times as fast as recorded.

    Raises:
        ConfigError: speed is not positive, or the trace has fewer requests than asked for.
    """
    count = len(trace) if count is None else count
    _check_count(count)
    if count > len(trace):
        raise ConfigError(f"requests = {count}: the trace has {len(trace)}")
    times = Replay(trace.arrival_s, speed).times(np.random.default_rng(0), count)
    return Workload(
        arrival_s=times,
        prompt_tokens=trace.prompt_tokens[:count],
        output_tokens=np.maximum(trace.output_tokens[:count], 1),
        chains=tuple(trace.chains())[:count] if chains and trace.block_tokens else (),
    )


def _streams(seed: int) -> list[np.random.Generator]:
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed = {seed}: allowed: 0 to {MAX_SEED}")
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)]


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_REQUESTS:
        raise ConfigError(f"requests = {count}: allowed: 1 to {MAX_REQUESTS}")


def _check_tokens(tokens: float) -> None:
    if not (math.isfinite(tokens) and 1 <= tokens <= _MOST_TOKENS):
        raise ConfigError(f"output_tokens = {tokens}: allowed: 1 to {_MOST_TOKENS:g}")
