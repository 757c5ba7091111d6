"""What one engine instance can do: how fast it prefills and decodes, how much KV cache it makes."""

import math
from dataclasses import dataclass
from enum import StrEnum

from prfaas.errors import ConfigError
from prfaas.profile.curve import Curve


class Origin(StrEnum):
    """Where a profile's figures come from; best first."""

    MEASURED = "measured"
    PUBLISHED = "published"
    DERIVED = "derived"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class DecodeProfile:
    """Decode of one instance: `step_s` is the seconds of one step over the batch size.

    `max_batch` is the largest batch that the instance holds, whatever the SLO.
    """

    step_s: Curve
    max_batch: int

    def __post_init__(self) -> None:
        if not 1 <= self.max_batch <= 1 << 20:
            raise ConfigError(f"max_batch: {self.max_batch}: must be from 1 to {1 << 20:,}")

    def batch_within(self, tpot_s: float) -> int:
        """Return BS_max: the largest batch whose step takes at most tpot_s; 0 if none does.

        Steps are taken not to get faster with the batch.
        """
        low, high = 0, self.max_batch
        while low < high:
            middle = (low + high + 1) // 2
            if self.step_s.at(middle) <= tpot_s * (1 + 1e-9):
                low = middle
            else:
                high = middle - 1
        return low

    def tokens_per_s(self, batch: int) -> float:
        """Return the output tokens per second of a full batch."""
        return batch / self.step_s.at(batch)


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """One instance: a model on some GPUs.

    `prefill_s` is T_prefill(l), seconds for l uncached tokens; `kv_bytes` is S_kv(l). `decode` is
    None for an instance that only prefills. `source` says where the figures come from.
    """

    name: str
    model: str
    hardware: str
    gpus: int
    prefill_s: Curve
    kv_bytes: Curve
    decode: DecodeProfile | None
    origin: Origin
    source: str

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ConfigError(f"gpus: {self.gpus}: one at least")

    def kv_throughput(self, tokens: float) -> float:
        """Return Phi_kv(l) = S_kv(l) / T_prefill(l) in bytes per second.

        Source: PrfaaS equation 1.
        """
        prefill_s = self.prefill_s.at(tokens)
        return self.kv_bytes.at(tokens) / prefill_s if prefill_s > 0 else math.inf
