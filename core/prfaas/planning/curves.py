"""The curves behind a plan, as numbers: KV throughput over length, and the search's two axes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.planning.grid import RateGrid, threshold_grid
from prfaas.planning.site import Constraints, Site
from prfaas.profile import InstanceProfile
from prfaas.throughput import Demand, Expectation, split_at

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoleCurve:
    """Lambda_max over N_p at a fixed threshold; all arrays `(num_roles,)`.

    Source: PrfaaS Figure 5a.
    """

    n_p: NDArray[np.int64]
    lambda_max: Floats


@dataclass(frozen=True, slots=True)
class ThresholdCurve:
    """Both sides of equation 7 and Lambda_max over the threshold; all arrays `(num_thresholds,)`.

    A side is infinite where its part of the traffic is empty.

    Source: PrfaaS Figure 5b.
    """

    thresholds: Floats
    offload_limit: Floats
    local_limit: Floats
    lambda_max: Floats


def kv_throughput_curve(profile: InstanceProfile, tokens: Iterable[float]) -> Floats:
    """Return Phi_kv at the lengths, in bytes per second.

    Source: PrfaaS equation 1.
    """
    return np.array([profile.kv_throughput(length) for length in tokens])


def role_curve(
    site: Site, demand: Demand, threshold_tokens: float, expectation: Expectation
) -> RoleCurve:
    """Return Lambda_max for every division of the PD cluster that leaves a decode instance."""
    total = site.pd.instances
    roles = [(n_p, total - n_p) for n_p in range(total)]
    parts = split_at(demand.lengths, np.array([threshold_tokens]), expectation)
    rates, _ = RateGrid(site, demand, parts).rates_and_room(roles)
    return RoleCurve(np.arange(total), rates[:, 0])


def threshold_curve(
    site: Site,
    demand: Demand,
    roles: tuple[int, int],
    expectation: Expectation,
    constraints: Constraints,
) -> ThresholdCurve:
    """Return the curves over the thresholds that are tried, for one (N_p, N_d)."""
    parts = split_at(demand.lengths, threshold_grid(demand.lengths, constraints), expectation)
    grid = RateGrid(site, demand, parts)
    rates, _ = grid.rates_and_room([roles])
    return ThresholdCurve(
        thresholds=parts.thresholds,
        offload_limit=grid.offload_limits,
        local_limit=grid.local_limits([roles[0]])[0],
        lambda_max=rates[0],
    )
