"""What equations 1 to 8 are about: clusters that prefill, a cluster that serves, and the demand."""

import math
from dataclasses import dataclass
from enum import StrEnum

from prfaas.errors import ConfigError
from prfaas.profile import InstanceProfile
from prfaas.workload.lengths import Lengths


class Expectation(StrEnum):
    """What a stage's mean time (and size) per request is taken to be."""

    MEAN_LENGTH = "mean"
    """The time of the mean length, T(E[L | L > t]): the paper's form."""
    EXACT = "exact"
    """The mean of the times, E[T(L) | L > t]: what a queue sees."""


@dataclass(frozen=True, slots=True)
class PrefillCluster:
    """A PrfaaS cluster: instances that only prefill, and the link on which their KV cache leaves.

    Of `egress_bytes_per_s` (B_out) at most `link_share` may be used.
    """

    name: str
    profile: InstanceProfile
    instances: int
    egress_bytes_per_s: float
    link_share: float = 1.0

    def __post_init__(self) -> None:
        if self.instances < 0:
            raise ConfigError(f"{self.name}: instances = {self.instances}: allowed: 0 or more")
        if not self.egress_bytes_per_s >= 0:
            raise ConfigError(
                f"{self.name}: egress_bytes_per_s = {self.egress_bytes_per_s}: allowed: 0 or more"
            )
        if not 0 < self.link_share <= 1:
            raise ConfigError(f"{self.name}: link_share = {self.link_share}: allowed: above 0 to 1")

    @property
    def usable_bytes_per_s(self) -> float:
        """Return what of the link may be used."""
        return self.egress_bytes_per_s * self.link_share


@dataclass(frozen=True, slots=True)
class PdCluster:
    """A local PD cluster: `prefill` (N_p) and `decode` (N_d) instances of one profile."""

    name: str
    profile: InstanceProfile
    prefill: int
    decode: int

    def __post_init__(self) -> None:
        for role, count in (("prefill", self.prefill), ("decode", self.decode)):
            if count < 0:
                raise ConfigError(f"{self.name}: {role} = {count}: allowed: 0 or more")
        if self.profile.decode is None:
            raise ConfigError(f"{self.name}: profile {self.profile.name} cannot decode")


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of the deployment, per request.

    `lengths` is the distribution of uncached prompt tokens, `output_tokens` is L_out, and `tpot_s`
    the time per output token that must be kept: it sets BS_max and T_decode.
    """

    lengths: Lengths
    output_tokens: float
    tpot_s: float

    def __post_init__(self) -> None:
        for field in ("output_tokens", "tpot_s"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{field} = {value}: allowed: a positive number")
