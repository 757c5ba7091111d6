"""The contenders of a comparison: each a policy on the hardware it is made for.

Those on one kind of hardware get what the case names as its homogeneous baseline, which in the
paper's case costs as much as the PrfaaS deployment. A limit of cost holds for all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from prfaas.errors import ConfigError
from prfaas.planning import Case, Constraints, Plan, plan
from prfaas.planning.site import Site
from prfaas.sim.policies.dual import DualTimescalePolicy
from prfaas.sim.policies.pools import (
    CacheCentricPolicy,
    ColocatedPolicy,
    LeastLoadedPolicy,
    PlacementPolicy,
    ShortestQueuePolicy,
)
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.policy import Policy
from prfaas.sim.scenario import CacheSpec, Deployment
from prfaas.throughput import Demand, Expectation, PdCluster, PrefillCluster
from prfaas.workload.lengths import expect

_NEVER = Constraints(threshold_tokens=float("inf"))
#: Prices are floats: a limit may be exceeded by so much, relative.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """What a case does not say about a deployment; see `Deployment`.

    `ttft_s` is the mean TTFT that DistServe's placement must keep; `chunk_tokens` the prefill
    chunk of colocated nodes; `expectation` what plans take a stage's mean time to be.
    """

    rtt_s: float = 0.020
    layers: int = 57
    batch_tokens: int = 0
    cache: CacheSpec = field(default_factory=CacheSpec)
    local_bytes_per_s: float = 50e9
    conversion_s: float = 30.0
    offload_timeout_s: float = 10.0
    ttft_s: float = 10.0
    chunk_tokens: int = 2048
    expectation: Expectation = Expectation.EXACT


@dataclass(frozen=True, slots=True)
class Contender:
    """One policy and its deployment. `lambda_max` is what the equations say it takes, in requests
    per second; `note` its plan in words."""

    name: str
    models: str
    source: str
    deployment: Deployment
    make_policy: Callable[[], Policy]
    lambda_max: float
    note: str


def make_contender(name: str, case: Case, settings: DeploymentSettings) -> Contender:
    """Return a contender for a case.

    Raises:
        ConfigError: there is no such contender, or the case has no deployment for it.
    """
    if name not in _MAKERS:
        raise ConfigError(f"policy: {name!r}: allowed: {', '.join(CONTENDERS)}")
    return _MAKERS[name](case, settings)


def _dual(case: Case, settings: DeploymentSettings) -> Contender:
    site = _with_usable_links(case)
    found = plan(site, case.demand, case.constraints, expectation=settings.expectation)
    return _planned(
        DualTimescalePolicy,
        lambda: DualTimescalePolicy(found, site, case.demand, case.constraints),
        found,
        replace(case, site=site),
        settings,
    )


def _threshold(case: Case, settings: DeploymentSettings) -> Contender:
    site = _with_usable_links(case)
    found = plan(site, case.demand, case.constraints, expectation=settings.expectation)
    threshold = found.threshold_tokens
    made = replace(case, site=site)
    return _planned(ThresholdPolicy, lambda: ThresholdPolicy(threshold), found, made, settings)


def _naive(case: Case, settings: DeploymentSettings) -> Contender:
    site = _affordable(case, settings)
    if not any(remote.instances for remote in site.remotes):
        raise ConfigError("policy: naive: the case has no PrfaaS cluster")
    all_remote = Constraints(threshold_tokens=0.0, n_p=0, min_decode=case.constraints.min_decode)
    found = plan(site, case.demand, all_remote, expectation=settings.expectation)
    made = replace(case, site=site)
    naive = _planned(ThresholdPolicy, lambda: ThresholdPolicy(0), found, made, settings)
    return replace(
        naive,
        name="naive",
        models="every prompt is prefilled remotely, every local instance decodes",
        source="PrfaaS Table 6, naive heterogeneous PD",
    )


def _homogeneous(case: Case, settings: DeploymentSettings) -> Contender:
    site = _one_kind(case)
    found = plan(site, case.demand, _NEVER, expectation=settings.expectation)
    return _alone(ShortestQueuePolicy, site, found.n_p, found.lambda_max, settings, case.demand)


def _mooncake(case: Case, settings: DeploymentSettings) -> Contender:
    site = _one_kind(case)
    found = plan(site, case.demand, _NEVER, expectation=settings.expectation)
    return _alone(CacheCentricPolicy, site, found.n_p, found.lambda_max, settings, case.demand)


def _distserve(case: Case, settings: DeploymentSettings) -> Contender:
    """The split with the most goodput, by the mean wait of an M/G/1 queue per prefill instance."""
    site = _one_kind(case)
    rates = {
        prefill: _goodput(site, prefill, case.demand, settings.ttft_s)
        for prefill in range(1, site.pd.instances)
    }
    best = max(rates, key=lambda prefill: rates[prefill])
    if rates[best] <= 0:
        raise ConfigError(f"ttft_s = {settings.ttft_s}: shorter than the mean prefill")
    limit = plan(
        site, case.demand, replace(_NEVER, n_p=best), expectation=settings.expectation
    ).lambda_max
    made = _alone(PlacementPolicy, site, best, limit, settings, case.demand)
    return replace(made, note=f"{made.note}, goodput {rates[best]:.2f}/s")


def _goodput(site: Site, prefill: int, demand: Demand, ttft_s: float) -> float:
    """Return the arrival rate up to which the mean TTFT is kept, and decode keeps its TPOT.

    Each prefill instance is an M/G/1 queue: W = r E[T^2] / 2 (1 - r E[T]) at its rate r.
    """
    curve = site.pd.profile.prefill_s
    values, weights = demand.lengths.cells()
    times = curve.over(values)
    mean_s, square = float(np.dot(times, weights)), float(np.dot(times**2, weights))
    wait_s = ttft_s - mean_s
    if wait_s <= 0:
        return 0.0
    rate = 2 * wait_s / (square + 2 * wait_s * mean_s)
    fixed = replace(_NEVER, n_p=prefill)
    decode = plan(site, demand, fixed, expectation=Expectation.EXACT).stages.theta_pd_d
    return min(prefill * rate, decode)


def _colocated(case: Case, settings: DeploymentSettings) -> Contender:
    site = _one_kind(case)
    decode = site.pd.profile.decode
    batch = decode.batch_within(case.demand.tpot_s) if decode else 0
    if decode is None or not batch:
        raise ConfigError(f"tpot_s = {case.demand.tpot_s}: no batch decodes that fast")
    prefill_s = expect(case.demand.lengths, site.pd.profile.prefill_s)
    decode_s = case.demand.output_tokens / decode.tokens_per_s(batch)
    count = site.pd.instances
    deployment = _deployment(
        settings, PdCluster(site.pd.name, site.pd.profile, count, 0), (), case.demand
    )
    return Contender(
        name=ColocatedPolicy.name,
        models=ColocatedPolicy.models,
        source=ColocatedPolicy.source,
        deployment=replace(deployment, chunk_tokens=settings.chunk_tokens),
        make_policy=ColocatedPolicy,
        lambda_max=count / (prefill_s + decode_s),
        note=f"{count} mixed instances, chunks of {settings.chunk_tokens:,} tokens",
    )


def _least_loaded(case: Case, settings: DeploymentSettings) -> Contender:
    """The roles are those that balance when every prefill node gets a like share of all tokens."""
    site, demand = _affordable(case, settings), case.demand
    best: tuple[float, int] = (0.0, 1)
    for prefill in range(1, site.pd.instances):
        pd = site.pd.divided(prefill, site.pd.instances - prefill)
        best = max(best, (_blind_rate(site, pd, demand), prefill))
    rate, prefill = best
    pd = site.pd.divided(prefill, site.pd.instances - prefill)
    return Contender(
        name=LeastLoadedPolicy.name,
        models=LeastLoadedPolicy.models,
        source=LeastLoadedPolicy.source,
        deployment=_deployment(settings, pd, site.remotes, demand),
        make_policy=LeastLoadedPolicy,
        lambda_max=rate,
        note=f"N_p/N_d = {pd.prefill}/{pd.decode}",
    )


def _blind_rate(site: Site, pd: PdCluster, demand: Demand) -> float:
    """Return the request rate at which prefill nodes of any kind, as fast as they are, are full."""
    capacity = pd.prefill / expect(demand.lengths, pd.profile.prefill_s)
    for remote in site.remotes:
        by_compute = remote.instances / expect(demand.lengths, remote.profile.prefill_s)
        by_link = remote.usable_bytes_per_s / expect(demand.lengths, remote.profile.kv_bytes)
        capacity += min(by_compute, by_link)
    alone = replace(site, remotes=())
    fixed = replace(_NEVER, n_p=pd.prefill, n_d=pd.decode)
    decode = plan(alone, demand, fixed, expectation=Expectation.EXACT).stages.theta_pd_d
    return min(capacity, decode)


def _planned(
    policy: type[ThresholdPolicy] | type[DualTimescalePolicy],
    make_policy: Callable[[], Policy],
    found: Plan,
    case: Case,
    settings: DeploymentSettings,
) -> Contender:
    site = case.site.resized(found.n_prfaas, case.site.pd.instances)
    pd = site.pd.divided(found.n_p, found.n_d)
    return Contender(
        name=policy.name,
        models=policy.models,
        source=policy.source,
        deployment=_deployment(settings, pd, site.remotes, case.demand),
        make_policy=make_policy,
        lambda_max=found.lambda_max,
        note=f"t = {found.threshold_tokens:,}, N_p/N_d = {found.n_p}/{found.n_d}",
    )


def _alone(
    policy: type[LeastLoadedPolicy],
    site: Site,
    prefill: int,
    rate: float,
    settings: DeploymentSettings,
    demand: Demand,
) -> Contender:
    pd = site.pd.divided(prefill, site.pd.instances - prefill)
    return Contender(
        name=policy.name,
        models=policy.models,
        source=policy.source,
        deployment=_deployment(settings, pd, (), demand),
        make_policy=policy,
        lambda_max=rate,
        note=f"N_p/N_d = {pd.prefill}/{pd.decode}",
    )


def _affordable(case: Case, settings: DeploymentSettings) -> Site:
    """Return the site with the instances of its plan, which keep the case's limit of cost."""
    site, constraints = _with_usable_links(case), case.constraints
    if constraints.max_cost_per_hour is None:
        return site
    free = replace(constraints, threshold_tokens=None, n_p=None, n_d=None)
    found = plan(site, case.demand, free, expectation=settings.expectation)
    return site.resized(found.n_prfaas, found.n_p + found.n_d)


def _with_usable_links(case: Case) -> Site:
    """Return the site with no more of its links than the case lets be used."""
    most = case.constraints.link_share
    remotes = tuple(
        replace(remote, link_share=min(remote.link_share, most)) for remote in case.site.remotes
    )
    return replace(case.site, remotes=remotes)


def _one_kind(case: Case) -> Site:
    """Return the site of the homogeneous baseline, as large as the case's limit of cost lets it."""
    site, limit = case.site, case.constraints.max_cost_per_hour
    count = site.homogeneous_instances or site.instances
    price = site.prices.get(site.pd.profile.hardware)
    if limit is not None and price:
        count = min(count, int(limit / price * (1 + _ROUNDING)))
        if count < 2:
            raise ConfigError(
                f"max_cost_per_hour = {limit:g}: buys {count} of {site.pd.name}: allowed: 2 or more"
            )
    if count < 2:
        raise ConfigError("homogeneous_instances: 2 or more are needed to prefill and decode")
    return replace(site, remotes=(), pd=replace(site.pd, instances=count))


def _deployment(
    settings: DeploymentSettings,
    pd: PdCluster,
    remotes: tuple[PrefillCluster, ...],
    demand: Demand,
) -> Deployment:
    return Deployment(
        pd=pd,
        remotes=remotes,
        tpot_s=demand.tpot_s,
        rtt_s=settings.rtt_s,
        layers=settings.layers,
        local_bytes_per_s=settings.local_bytes_per_s,
        batch_tokens=settings.batch_tokens,
        cache=settings.cache,
        conversion_s=settings.conversion_s,
        offload_timeout_s=settings.offload_timeout_s,
    )


_MAKERS: Mapping[str, Callable[[Case, DeploymentSettings], Contender]] = {
    "prfaas": _dual,
    "threshold": _threshold,
    "naive": _naive,
    "homogeneous": _homogeneous,
    "distserve": _distserve,
    "mooncake": _mooncake,
    "colocated": _colocated,
    "least-loaded": _least_loaded,
}

CONTENDERS: tuple[str, ...] = tuple(_MAKERS)
