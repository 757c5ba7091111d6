"""One study of a case: the plan, its baselines, and what more of anything would bring."""

import time
from dataclasses import dataclass, replace
from typing import Any

from prfaas.errors import ConfigError
from prfaas.planning import (
    Baselines,
    Case,
    Change,
    Constraints,
    Limits,
    Plan,
    Site,
    baselines,
    least_cost,
    limits_of,
    plan,
    sensitivity,
    too_low,
)
from prfaas.throughput import Expectation, Stage
from prfaas.throughput.equations import role_imbalance
from prfaas_cli.plan_rent import rent_document, rent_of


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that `prfaasctl plan` says. `search_s` is the time of the plan's search alone."""

    case: Case
    expectation: Expectation
    plan: Plan
    baselines: Baselines
    changes: tuple[Change, ...]
    search_s: float


def study(case: Case, expectation: Expectation) -> Study:
    """Return the study of a case.

    Raises:
        ConfigError: no plan keeps the constraints, or the best lets nothing through.
    """
    site, demand, constraints = case.site, case.demand, case.constraints
    began_s = time.perf_counter()
    try:
        found = plan(site, demand, constraints, expectation=expectation)
    except ConfigError as error:
        raise ConfigError(f"case {case.name}: {error}") from None
    search_s = time.perf_counter() - began_s
    if found.lambda_max <= 0:
        raise ConfigError(f"case {case.name}: {_why_nothing(case, found, expectation)}")
    return Study(
        case=case,
        expectation=expectation,
        plan=found,
        baselines=baselines(site, demand, constraints, expectation=expectation),
        changes=sensitivity(site, demand, found, constraints, expectation=expectation),
        search_s=search_s,
    )


def _why_nothing(case: Case, found: Plan, expectation: Expectation) -> str:
    """Say why the best plan lets nothing through: the limit of cost, or else the full stage."""
    cost = case.constraints.max_cost_per_hour
    if cost is not None:
        least = least_cost(case.site, case.demand, case.constraints, expectation=expectation)
        if least is not None:
            return too_low(cost, least)
    return (
        f"nothing gets through: {found.stages.bottleneck} takes no request"
        f" at N_prfaas / N_p / N_d = {sum(found.n_prfaas)} / {found.n_p} / {found.n_d}"
    )


def limits(study: Study, found: Plan) -> Limits:
    """Return how the plan or a baseline stands to the case's limits."""
    site = study.case.site
    if not found.n_prfaas:
        site = replace(site, remotes=())
    return limits_of(site, study.case.demand, study.case.constraints, found)


def breaks_cost(study: Study, found: Plan) -> bool:
    """Tell whether a plan costs more than the case allows."""
    return "max_cost_per_hour" in limits(study, found).breaks


def with_links(case: Case, bytes_per_s: float) -> Case:
    """Return the case with every link of that rate."""
    remotes = tuple(replace(remote, egress_bytes_per_s=bytes_per_s) for remote in case.site.remotes)
    return replace(case, site=replace(case.site, remotes=remotes))


def with_fixed(case: Case, **fixed: Any) -> Case:
    """Return the case with fields of its constraints set."""
    constraints: Constraints = replace(case.constraints, **fixed)
    return replace(case, constraints=constraints)


def document_of(study: Study) -> dict[str, Any]:
    """Return the study as plain JSON values. Rates are requests per second."""
    found = study.plan
    at = found.stages
    return {
        "case": study.case.name,
        "expectation": str(study.expectation),
        "threshold_tokens": found.threshold_tokens,
        "n_prfaas": sum(found.n_prfaas),
        "n_p": found.n_p,
        "n_d": found.n_d,
        "theta_prfaas": at.theta_prfaas,
        "theta_pd_p": at.theta_pd_p,
        "theta_pd_d": at.theta_pd_d,
        "lambda_max": at.lambda_max,
        "offload_fraction": at.offload_fraction,
        "l_long_tokens": at.l_long_tokens,
        "l_short_tokens": at.l_short_tokens,
        "egress_gbps": gbps(at.egress_bytes_per_s),
        "bottleneck": str(at.bottleneck),
        "utilisation": {str(stage): at.utilisation.of(stage) for stage in Stage},
        "prefill_to_decode": role_imbalance(at.theta_prfaas, at.theta_pd_p, at.theta_pd_d),
        "clusters": _clusters(study),
        "ttft": _ttft(found),
        "ttft_goal": _ttft_goal(study),
        "rent": rent_document(rent_of(study.case.site, found)),
        "cost_per_hour": found.cost_per_hour,
        "max_cost_per_hour": study.case.constraints.max_cost_per_hour,
        "requests_per_cost": requests_per_cost(found),
        "baselines": {
            name: None if other is None else _baseline(study, other)
            for name, other in baselines_of(study).items()
        },
        "ratios": ratios(study),
        "sensitivity": [_change(study, change) for change in study.changes],
        "search_ms": study.search_s * 1e3,
        "evaluated": found.evaluated,
    }


def baselines_of(study: Study) -> dict[str, Plan | None]:
    """Return the baselines by their names."""
    return {"homogeneous": study.baselines.homogeneous, "naive": study.baselines.naive}


def ratios(study: Study) -> dict[str, float | None]:
    """Return Lambda_max over that of the homogeneous baseline."""
    base = study.baselines.homogeneous.lambda_max
    plans = {"plan": study.plan, **baselines_of(study)}
    return {
        name: found.lambda_max / base if found is not None and base > 0 else None
        for name, found in plans.items()
    }


def requests_per_cost(found: Plan) -> float | None:
    """Return Lambda_max x 3600 per price of an hour: requests per unit of price."""
    return found.lambda_max * 3600 / found.cost_per_hour if found.cost_per_hour else None


def gbps(bytes_per_s: float) -> float:
    """Return 10^9 bits per second.

    >>> gbps(12.5e9)
    100.0
    """
    return bytes_per_s * 8 / 1e9


def used_of(study: Study) -> Site:
    """Return the site with the instances that the plan uses."""
    found = study.plan
    return study.case.site.resized(found.n_prfaas, found.n_p + found.n_d)


def _clusters(study: Study) -> list[dict[str, Any]]:
    return [
        {
            "name": cluster.name,
            "instances": cluster.instances,
            "theta": cluster.theta,
            "share": cluster.share,
            "link_gbps": gbps(remote.egress_bytes_per_s),
            "egress_gbps": gbps(cluster.egress_bytes_per_s),
            "prefill_utilisation": cluster.prefill_utilisation,
            "link_utilisation": cluster.link_utilisation,
        }
        for cluster, remote in zip(study.plan.stages.clusters, study.case.site.remotes, strict=True)
    ]


def _ttft(found: Plan) -> dict[str, float]:
    return {
        "prefill_mean_s": found.ttft.prefill_mean_s,
        "prefill_p90_s": found.ttft.prefill_p90_s,
        "with_transfer_mean_s": found.ttft.arrival_mean_s,
        "with_transfer_p90_s": found.ttft.arrival_p90_s,
    }


def _ttft_goal(study: Study) -> dict[str, float | None] | None:
    goal, at = study.case.constraints.ttft, limits(study, study.plan)
    if goal is None:
        return None
    return {
        "seconds": goal.seconds,
        "quantile": goal.quantile,
        "plan_s": at.ttft_s,
        "spare_s": at.ttft_spare_s,
    }


def _baseline(study: Study, found: Plan) -> dict[str, Any]:
    at = found.stages
    return {
        "n_prfaas": sum(found.n_prfaas),
        "n_p": found.n_p,
        "n_d": found.n_d,
        "theta_prfaas": at.theta_prfaas,
        "theta_pd_p": at.theta_pd_p,
        "theta_pd_d": at.theta_pd_d,
        "lambda_max": at.lambda_max,
        "egress_gbps": gbps(at.egress_bytes_per_s),
        "bottleneck": str(at.bottleneck),
        "ttft": _ttft(found),
        "cost_per_hour": found.cost_per_hour,
        "requests_per_cost": requests_per_cost(found),
        "breaks": list(limits(study, found).breaks),
    }


def _change(study: Study, change: Change) -> dict[str, Any]:
    return {
        "more": str(change.more),
        "cluster": change.cluster,
        "lambda_max": change.plan.lambda_max,
        "gain": change.gain,
        "threshold_tokens": change.plan.threshold_tokens,
        "n_p": change.plan.n_p,
        "n_d": change.plan.n_d,
        "bottleneck": str(change.plan.stages.bottleneck),
        "cost_per_hour": change.plan.cost_per_hour,
        "breaks": ["max_cost_per_hour"] if breaks_cost(study, change.plan) else [],
    }
