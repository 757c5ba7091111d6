"""What may be planned: the instances and links there are, their prices, and what must hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from prfaas.errors import ConfigError
from prfaas.profile import InstanceProfile
from prfaas.throughput import PdCluster, PrefillCluster


@dataclass(frozen=True, slots=True)
class PdPool:
    """The instances of a local PD cluster, each to become prefill or decode."""

    name: str
    profile: InstanceProfile
    instances: int

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ConfigError(f"{self.name}: instances = {self.instances}: allowed: 1 or more")
        if self.profile.decode is None:
            raise ConfigError(f"{self.name}: profile {self.profile.name} cannot decode")

    def divided(self, prefill: int, decode: int) -> PdCluster:
        """Return the cluster with these roles."""
        return PdCluster(self.name, self.profile, prefill, decode)


@dataclass(frozen=True, slots=True)
class Site:
    """A local PD cluster and any number of PrfaaS clusters, each with a link of its own.

    `prices` are per instance and hour, by the profiles' hardware; may be empty.
    `homogeneous_instances` is the size of the homogeneous baseline, which has the PD cluster's
    profile throughout; None is as many instances as the site has in all.
    """

    remotes: tuple[PrefillCluster, ...]
    pd: PdPool
    prices: Mapping[str, float] = field(default_factory=dict)
    homogeneous_instances: int | None = None

    def __post_init__(self) -> None:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) < len(names):
            raise ConfigError(f"clusters: names must differ: {', '.join(names)}")
        for hardware, price in self.prices.items():
            if not (math.isfinite(price) and price >= 0):
                raise ConfigError(f"prices.{hardware} = {price}: allowed: 0 or more")

    @property
    def clusters(self) -> tuple[PrefillCluster | PdPool, ...]:
        """Return the PrfaaS clusters, then the PD cluster."""
        return (*self.remotes, self.pd)

    @property
    def instances(self) -> int:
        """Return the number of instances of all clusters."""
        return sum(cluster.instances for cluster in self.clusters)

    def cost_per_hour(self) -> float | None:
        """Return the price of all instances; None if one's hardware has none."""
        if any(cluster.profile.hardware not in self.prices for cluster in self.clusters):
            return None
        return sum(
            cluster.instances * self.prices[cluster.profile.hardware] for cluster in self.clusters
        )

    def resized(self, n_prfaas: Sequence[int], pd_instances: int) -> "Site":
        """Return the site with other numbers of instances."""
        remotes = tuple(
            replace(remote, instances=count)
            for remote, count in zip(self.remotes, n_prfaas, strict=True)
        )
        return replace(self, remotes=remotes, pd=replace(self.pd, instances=pd_instances))


@dataclass(frozen=True, slots=True)
class TtftGoal:
    """Bare TTFT (prefill and transfer) of at most `seconds` in the mean, or at the quantile."""

    seconds: float
    quantile: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ConfigError(f"ttft_s = {self.seconds}: allowed: a positive number")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise ConfigError(f"ttft_quantile = {self.quantile}: allowed: between 0 and 1")


@dataclass(frozen=True, slots=True)
class Constraints:
    """What a plan must keep, and what is not to be searched.

    `link_share` caps every cluster's own. With `max_cost_per_hour` a plan may leave instances out,
    so that what is left costs no more; without, it uses all. `threshold_tokens`, `n_p` and `n_d`
    fix what would be searched.
    """

    threshold_step_tokens: int = 100
    min_prfaas: int = 0
    min_prefill: int = 0
    min_decode: int = 1
    link_share: float = 1.0
    ttft: TtftGoal | None = None
    max_cost_per_hour: float | None = None
    threshold_tokens: float | None = None
    n_p: int | None = None
    n_d: int | None = None

    def __post_init__(self) -> None:
        if self.threshold_step_tokens < 1:
            raise ConfigError(
                f"threshold_step_tokens = {self.threshold_step_tokens}: allowed: 1 or more"
            )
        for key in ("min_prfaas", "min_prefill", "min_decode", "n_p", "n_d"):
            value = getattr(self, key)
            if value is not None and value < 0:
                raise ConfigError(f"{key} = {value}: allowed: 0 or more")
        for key in ("max_cost_per_hour", "threshold_tokens"):
            value = getattr(self, key)
            if value is not None and not value >= 0:
                raise ConfigError(f"{key} = {value}: allowed: 0 or more")
        if not 0 < self.link_share <= 1:
            raise ConfigError(f"link_share = {self.link_share}: allowed: above 0 to 1")
