"""Prompts as token ids: exactly as long as asked, and equal where their chains are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas_loadtest.workloads.schedule import Request

Ids = NDArray[np.int64]

_LEAST_CHOICES = 2
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class IdPrompts:
    """Token ids from `low` up to, but not with, `high`.

    The same `salt` gives the same tokens; another run takes another, so that a deployment's caches
    know nothing of it.

    >>> a = Request(0, 0.0, 5, 1, 0, "", ((7, 3),))
    >>> b = Request(1, 0.0, 6, 1, 0, "", ((7, 3),))
    >>> prompts = IdPrompts(low=3, high=500, salt=1)
    >>> first, second = prompts.ids(a).tolist(), prompts.ids(b).tolist()
    >>> first[:3] == second[:3], first[3:5] == second[3:5], len(second)
    (True, False, 6)
    """

    low: int
    high: int
    salt: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high - _LEAST_CHOICES < 1 << 31:
            raise ConfigError(f"token ids from {self.low} to {self.high}: allowed: two at least")

    def ids(self, request: Request) -> Ids:
        """Return the request's prompt."""
        parts = []
        done = 0
        for name, end in request.chain:
            parts.append(self._run((request.workload, 1, name), end - done))
            done = end
        if done < request.prompt_tokens:
            own = (request.workload, 2, request.index)
            parts.append(self._run(own, request.prompt_tokens - done))
        return np.concatenate(parts)[: request.prompt_tokens]

    def _run(self, key: tuple[int, int, int], count: int) -> Ids:
        words = [self.salt & _U64, *(part & _U64 for part in key)]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
        return rng.integers(self.low, self.high, size=count)
