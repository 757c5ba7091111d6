"""The exhaustive search for the threshold and the roles that let the most requests through.

Source: PrfaaS §3.4.2: a two-dimensional grid search over t and N_p/N_d.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.planning.grid import RateGrid, Roles, threshold_grid
from prfaas.planning.site import Constraints, Site, TtftGoal
from prfaas.throughput import Demand, Expectation, Stages, split_at, stages
from prfaas.throughput.ttft import Ttft, arrival_of, ttft_of
from prfaas.workload.lengths import Lengths

Floats = NDArray[np.float64]

#: Plans this close (relative) are equal: of them the one with the most room for prefill is taken.
_EQUAL = 1e-9
#: The threshold, in whole tokens, of a plan that was given an infinite one.
NEVER = 1 << 30

_MAX_SITES = 20_000
#: Of thresholds and divisions, compared at once.
MOST_COMBINATIONS = 10_000_000
_MOST_CLUSTERS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """The best deployment found. `n_prfaas` is per PrfaaS cluster, in the site's order.

    `evaluated` is the number of combinations of threshold and instances that were compared.
    `cost_per_hour` is that of the instances with a role, not of idle ones.
    """

    threshold_tokens: int
    n_prfaas: tuple[int, ...]
    n_p: int
    n_d: int
    stages: Stages
    ttft: Ttft
    cost_per_hour: float | None
    evaluated: int

    @property
    def lambda_max(self) -> float:
        """Return the requests per second that the plan can take."""
        return self.stages.lambda_max


@dataclass(frozen=True, slots=True)
class Choice:
    """A threshold and roles of a site, and what they let through.

    `room` is what prefill alone would, in requests per second like `lambda_max`.
    """

    lambda_max: float
    room: float
    threshold: float
    site: Site
    n_p: int
    n_d: int

    @property
    def threshold_tokens(self) -> int:
        """The threshold in whole tokens."""
        return round(self.threshold) if np.isfinite(self.threshold) else NEVER


def plan(
    site: Site,
    demand: Demand,
    constraints: Constraints | None = None,
    *,
    expectation: Expectation = Expectation.MEAN_LENGTH,
) -> Plan:
    """Return the plan of the highest Lambda_max within the constraints.

    Raises:
        ConfigError: no plan keeps the constraints; the text says which.
    """
    constraints = constraints or Constraints()
    site = with_link_share(site, constraints.link_share)
    parts = split_at(demand.lengths, threshold_grid(demand.lengths, constraints), expectation)
    sites = list(_sites(site, constraints))
    best: Choice | None = None
    evaluated = 0
    _check_size(site, len(parts.thresholds))
    for smaller in sites:
        evaluated += len(_roles(smaller, constraints)) * len(parts.thresholds)
        best = _better(best, choose(RateGrid(smaller, demand, parts), constraints))
    if best is None:
        raise ConfigError(_why_none(site, sites, demand, constraints, expectation))
    return _plan_of(best, demand, expectation, evaluated)


def _check_size(site: Site, thresholds: int) -> None:
    """Refuse what would take minutes and gigabytes.

    Raises:
        ConfigError: naming what there is too much of.
    """
    most = MOST_COMBINATIONS // max(thresholds, 1)
    if site.pd.instances > most:
        raise ConfigError(
            f"{site.pd.name}: instances = {site.pd.instances}: allowed: at most {most} with"
            f" {thresholds} thresholds to compare"
        )
    if len(site.remotes) > _MOST_CLUSTERS:
        raise ConfigError(f"prfaas: {len(site.remotes)} clusters: allowed: {_MOST_CLUSTERS}")


def _sites(site: Site, constraints: Constraints) -> Iterator[Site]:
    """Give the whole site or, under a limit of cost, all parts of it that keep the limit."""
    limit = constraints.max_cost_per_hour
    if limit is None:
        yield site
        return
    if site.cost_per_hour() is None:
        raise ConfigError("max_cost_per_hour: prices: every cluster's hardware needs one")
    counts = [range(constraints.min_prfaas, remote.instances + 1) for remote in site.remotes]
    counts.append(range(1, site.pd.instances + 1))
    choices = prod(map(len, counts))
    if choices > _MAX_SITES:
        raise ConfigError(
            f"max_cost_per_hour: {choices} choices of instances: allowed: {_MAX_SITES}"
        )
    for *n_prfaas, pd_instances in product(*counts):
        smaller = site.resized(n_prfaas, pd_instances)
        if (smaller.cost_per_hour() or 0.0) <= limit * (1 + _EQUAL):
            yield smaller


def _roles(site: Site, constraints: Constraints) -> list[Roles]:
    """Return all (N_p, N_d) within the floors; what is fixed leaves instances idle if it must."""
    total = site.pd.instances
    if constraints.n_p is not None and constraints.n_d is not None:
        pairs = [(constraints.n_p, constraints.n_d)]
    elif constraints.n_p is not None:
        pairs = [(constraints.n_p, total - constraints.n_p)]
    elif constraints.n_d is not None:
        pairs = [(total - constraints.n_d, constraints.n_d)]
    else:
        pairs = [(n_p, total - n_p) for n_p in range(total + 1)]
    return [
        (n_p, n_d)
        for n_p, n_d in pairs
        if n_p >= constraints.min_prefill and n_d >= constraints.min_decode and n_p + n_d <= total
    ]


def choose(grid: RateGrid, constraints: Constraints) -> Choice | None:
    """Return the best threshold and roles of a grid.

    None where floors and fixed roles leave no division, or no threshold keeps the TTFT.
    """
    site, thresholds = grid.site, grid.parts.thresholds
    roles = _roles(site, constraints)
    if not roles:
        return None
    rates, room = grid.rates_and_room(roles)
    allowed = keeps_ttft(site, grid.demand.lengths, constraints.ttft, thresholds)
    rates = np.where(allowed, rates, -1.0)
    highest = float(rates.max())
    if highest < 0:
        return None
    most = np.where(rates >= highest * (1 - _EQUAL), room, -1.0)
    row, column = np.unravel_index(int(np.argmax(most)), rates.shape)
    n_p, n_d = roles[int(row)]
    threshold = float(thresholds[column])
    return Choice(highest, float(most[row, column]), threshold, site, n_p, n_d)


def keeps_ttft(
    site: Site, lengths: Lengths, goal: TtftGoal | None, thresholds: Floats
) -> NDArray[np.bool_]:
    """Return for every threshold whether the goal is kept; `(num_thresholds,)`."""
    if goal is None:
        return np.ones(thresholds.shape, dtype=np.bool_)
    arrival = arrival_of(site.remotes, site.pd.profile, transfer=True)
    if goal.quantile is None:
        return np.asarray(arrival.mean_s(lengths, thresholds) <= goal.seconds)
    within = arrival.share_within(lengths, thresholds, goal.seconds)
    return np.asarray(within >= goal.quantile - _EQUAL)


def _better(left: Choice | None, right: Choice | None) -> Choice | None:
    """Return the higher rate; of equals the cheaper, then the one with more room for prefill."""
    if left is None or right is None:
        return left or right
    if abs(left.lambda_max - right.lambda_max) > _EQUAL * max(left.lambda_max, right.lambda_max):
        return left if left.lambda_max > right.lambda_max else right
    costs = [found.site.cost_per_hour() or 0.0 for found in (left, right)]
    if costs[0] != costs[1]:
        return left if costs[0] < costs[1] else right
    return left if left.room >= right.room else right


def _plan_of(found: Choice, demand: Demand, expectation: Expectation, evaluated: int) -> Plan:
    site, threshold = found.site, found.threshold
    pd = site.pd.divided(found.n_p, found.n_d)
    at = stages(site.remotes, pd, demand, threshold, expectation=expectation)
    n_prfaas = tuple(remote.instances for remote in site.remotes)
    return Plan(
        threshold_tokens=found.threshold_tokens,
        n_prfaas=n_prfaas,
        n_p=found.n_p,
        n_d=found.n_d,
        stages=at,
        ttft=ttft_of(site.remotes, site.pd.profile, demand.lengths, threshold),
        cost_per_hour=site.resized(n_prfaas, found.n_p + found.n_d).cost_per_hour(),
        evaluated=evaluated,
    )


def with_link_share(site: Site, share: float) -> Site:
    """Return the site with no link used above the share."""
    if share >= 1:
        return site
    remotes = tuple(
        replace(remote, link_share=min(remote.link_share, share)) for remote in site.remotes
    )
    return replace(site, remotes=remotes)


def least_cost(
    site: Site,
    demand: Demand,
    constraints: Constraints,
    *,
    expectation: Expectation = Expectation.MEAN_LENGTH,
) -> float | None:
    """Return the lowest cost per hour that lets requests through; None where no cost does."""
    site = with_link_share(site, constraints.link_share)
    parts = split_at(demand.lengths, threshold_grid(demand.lengths, constraints), expectation)

    def works(smaller: Site) -> bool:
        found = choose(RateGrid(smaller, demand, parts), constraints)
        return found is not None and found.lambda_max > 0

    if not works(site):
        return None
    whole = replace(constraints, max_cost_per_hour=float("inf"))
    by_cost = sorted(_sites(site, whole), key=lambda smaller: smaller.cost_per_hour() or 0.0)
    return next((smaller.cost_per_hour() for smaller in by_cost if works(smaller)), None)


def _why_none(
    site: Site,
    sites: list[Site],
    demand: Demand,
    constraints: Constraints,
    expectation: Expectation,
) -> str:
    roles = _why_no_roles(site, constraints)
    if roles:
        return roles
    cost = constraints.max_cost_per_hour
    if cost is not None:
        least = least_cost(site, demand, constraints, expectation=expectation)
        if least is not None:
            return too_low(cost, least)
        if not sites or constraints.ttft is None:
            return f"max_cost_per_hour = {cost}: too low for any choice of instances"
    return _why_late(site, demand, constraints)


def too_low(cost: float, least: float) -> str:
    """Say that a limit of cost is below the least that works."""
    return (
        f"max_cost_per_hour = {cost:.12g}: allowed: {least:.12g} or more, the least"
        " with which requests get through and all else is kept"
    )


def _why_no_roles(site: Site, constraints: Constraints) -> str | None:
    """Say which fixed count or floor leaves the whole site without a division."""
    if _roles(site, constraints):
        return None
    total, pd = site.pd.instances, site.pd.name
    floors = {"n_p": constraints.min_prefill, "n_d": constraints.min_decode}
    for key, other, floor in (("n_p", "n_d", "min_prefill"), ("n_d", "n_p", "min_decode")):
        count, most = getattr(constraints, key), total - floors[other]
        if count is not None and not floors[key] <= count <= most:
            return (
                f"{key} = {count}: allowed: {floors[key]} ({floor}) to {most}, as {pd} has {total}"
                " instances"
            )
    return f"n_p, n_d, min_prefill, min_decode: no division of {total} instances of {pd} keeps them"


def _why_late(site: Site, demand: Demand, constraints: Constraints) -> str:
    """Say what misses the TTFT: the threshold that was fixed, or all of them."""
    goal, fixed = constraints.ttft, constraints.threshold_tokens
    assert goal is not None
    if fixed is not None:
        grid = threshold_grid(demand.lengths, replace(constraints, threshold_tokens=None))
        keeping = grid[keeps_ttft(site, demand.lengths, goal, grid)]
        if len(keeping):
            nearest = keeping[np.argmin(np.abs(keeping - fixed))]
            return (
                f"threshold_tokens = {fixed:.0f}: misses ttft_s = {goal.seconds:g};"
                f" allowed: one that keeps it, the nearest is {nearest:.0f}"
            )
    return f"ttft_s = {goal.seconds:g}: no threshold keeps it, even without queues"
