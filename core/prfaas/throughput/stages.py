"""Where the requests of a deployment go, how much each stage can take, and which is full first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from prfaas.errors import ConfigError
from prfaas.throughput import equations
from prfaas.throughput.clusters import Demand, Expectation, PdCluster, PrefillCluster
from prfaas.throughput.split import Split, split_at


class Stage(StrEnum):
    """What can be full."""

    PRFAAS_PREFILL = "prfaas_prefill"
    LINK = "link"
    PD_PREFILL = "pd_prefill"
    PD_DECODE = "pd_decode"


@dataclass(frozen=True, slots=True)
class ClusterStage:
    """One PrfaaS cluster's part at `lambda_max`.

    `theta` is what it can take (requests per second), `share` its part of the offloaded requests,
    the utilisations are of its instances and of what may be used of its link.
    """

    name: str
    instances: int
    theta: float
    share: float
    link_bound: bool
    egress_bytes_per_s: float
    prefill_utilisation: float
    link_utilisation: float


@dataclass(frozen=True, slots=True)
class Utilisation:
    """How full each stage is at `lambda_max`; of several PrfaaS clusters the fullest counts."""

    prfaas_prefill: float
    link: float
    pd_prefill: float
    pd_decode: float

    def of(self, stage: Stage) -> float:
        """Return the utilisation of the stage."""
        return float(getattr(self, stage.value))


@dataclass(frozen=True, slots=True)
class Stages:
    """Equations 3 to 6 for one deployment and threshold.

    Rates are requests per second. A stage that no request passes has a theta of 0 and does not
    limit. `utilisation`, `clusters` and `egress_bytes_per_s` (of all links) are at `lambda_max`.
    """

    threshold_tokens: float
    theta_prfaas: float
    theta_pd_p: float
    theta_pd_d: float
    lambda_max: float
    offload_fraction: float
    l_long_tokens: float
    l_short_tokens: float
    egress_bytes_per_s: float
    bottleneck: Stage
    utilisation: Utilisation
    clusters: tuple[ClusterStage, ...]

    @property
    def offload_limit(self) -> float:
        """Return Theta_prfaas / p, infinite where nothing is offloaded; one side of equation 7."""
        return _limit(self.theta_prfaas, self.offload_fraction)

    @property
    def local_limit(self) -> float:
        """Return Theta_pd_p / (1 - p), infinite where all is offloaded."""
        return _limit(self.theta_pd_p, 1 - self.offload_fraction)


def stages(
    remotes: Sequence[PrefillCluster],
    pd: PdCluster,
    demand: Demand,
    threshold_tokens: float,
    *,
    expectation: Expectation = Expectation.MEAN_LENGTH,
) -> Stages:
    """Return what a deployment can take at a threshold; infinity offloads nothing.

    Offloaded requests are shared among the PrfaaS clusters in proportion to what each can take.

    Raises:
        ConfigError: the threshold is negative or not a number.

    Source: PrfaaS §3.4.
    """
    if not threshold_tokens >= 0:
        raise ConfigError(f"threshold = {threshold_tokens}: allowed: 0 or more tokens")
    parts = split_at(demand.lengths, np.array([float(threshold_tokens)]), expectation)
    offloaded = float(parts.offload_fraction[0])
    costs = [_long_costs(parts, remote) for remote in remotes]
    thetas = [_theta_of(remote, cost) for remote, cost in zip(remotes, costs, strict=True)]
    short_s = float(parts.short_mean(pd.profile.prefill_s.over)[0])
    local = float(equations.theta_pd_p(pd.prefill, np.array(short_s))) if offloaded < 1 else 0.0
    decode = equations.theta_pd_d(pd.decode, pd.profile, demand.tpot_s, demand.output_tokens)
    remote_theta = math.fsum(thetas)
    rate = min(_limit(remote_theta, offloaded), _limit(local, 1 - offloaded), decode)
    clusters = _clusters(remotes, thetas, costs, rate * offloaded)
    return Stages(
        threshold_tokens=float(threshold_tokens),
        theta_prfaas=remote_theta,
        theta_pd_p=local,
        theta_pd_d=decode,
        lambda_max=rate,
        offload_fraction=offloaded,
        l_long_tokens=float(parts.long_tokens[0]),
        l_short_tokens=float(parts.short_tokens[0]),
        egress_bytes_per_s=math.fsum(cluster.egress_bytes_per_s for cluster in clusters),
        bottleneck=_bottleneck(_limit(remote_theta, offloaded), decode, rate, clusters),
        utilisation=Utilisation(
            prfaas_prefill=max((cluster.prefill_utilisation for cluster in clusters), default=0.0),
            link=max((cluster.link_utilisation for cluster in clusters), default=0.0),
            pd_prefill=_used(rate * (1 - offloaded), local),
            pd_decode=_used(rate, decode),
        ),
        clusters=clusters,
    )


def _long_costs(parts: Split, remote: PrefillCluster) -> tuple[float, float]:
    """Return the mean seconds and bytes of an offloaded prompt; 0 if there are none."""
    seconds = float(parts.long_mean(remote.profile.prefill_s.over)[0])
    return seconds, float(parts.long_mean(remote.profile.kv_bytes.over)[0])


def _theta_of(remote: PrefillCluster, cost: tuple[float, float]) -> float:
    seconds, size = cost
    if seconds <= 0 and size <= 0:
        return 0.0
    bandwidth = remote.usable_bytes_per_s
    return float(
        equations.theta_prfaas(remote.instances, np.array(seconds), bandwidth, np.array(size))
    )


def _clusters(
    remotes: Sequence[PrefillCluster],
    thetas: Sequence[float],
    costs: Sequence[tuple[float, float]],
    offloaded_rate: float,
) -> tuple[ClusterStage, ...]:
    total = sum(thetas)
    found = []
    for remote, theta, (seconds, size) in zip(remotes, thetas, costs, strict=True):
        share = theta / total if total > 0 else 0.0
        rate = offloaded_rate * share
        found.append(
            ClusterStage(
                name=remote.name,
                instances=remote.instances,
                theta=theta,
                share=share,
                link_bound=remote.usable_bytes_per_s * seconds < remote.instances * size,
                egress_bytes_per_s=rate * size,
                prefill_utilisation=_used(rate * seconds, remote.instances),
                link_utilisation=_used(rate * size, remote.usable_bytes_per_s),
            )
        )
    return tuple(found)


def _bottleneck(
    offload_limit: float, decode: float, rate: float, clusters: Sequence[ClusterStage]
) -> Stage:
    """Return the stage that sets the rate; PrfaaS is the link where that holds its greater part."""
    if decode <= rate:
        return Stage.PD_DECODE
    if offload_limit > rate:
        return Stage.PD_PREFILL
    by_link = [cluster.theta for cluster in clusters if cluster.link_bound]
    by_prefill = [cluster.theta for cluster in clusters if not cluster.link_bound]
    return Stage.LINK if by_link and sum(by_link) >= sum(by_prefill) else Stage.PRFAAS_PREFILL


def _limit(theta: float, share: float) -> float:
    return theta / share if share > 0 else math.inf


def _used(load: float, capacity: float) -> float:
    return load / capacity if capacity > 0 else 0.0
