"""How far a plan is from the limits of cost and TTFT: baselines are not made to keep them."""

from dataclasses import dataclass

import numpy as np

from prfaas.planning.search import Plan, with_link_share
from prfaas.planning.site import Constraints, Site
from prfaas.throughput import Demand
from prfaas.throughput.ttft import arrival_of

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """What is left of each limit, negative where it is broken; None where there is no limit.

    `ttft_s` is the bare TTFT with transfer that the goal is about: its mean or its quantile.
    """

    ttft_s: float | None
    ttft_spare_s: float | None
    cost_spare: float | None

    @property
    def breaks(self) -> tuple[str, ...]:
        """Return the names of the limits that are broken, as a case names them."""
        spares = (("ttft_s", self.ttft_spare_s), ("max_cost_per_hour", self.cost_spare))
        return tuple(name for name, spare in spares if spare is not None and spare < 0)


def limits_of(site: Site, demand: Demand, constraints: Constraints, found: Plan) -> Limits:
    """Return how a plan of the site stands to the limits; `site` is before leaving any out."""
    ttft_s = _ttft_s(site, demand, constraints, found)
    goal, limit, cost = constraints.ttft, constraints.max_cost_per_hour, found.cost_per_hour
    return Limits(
        ttft_s=ttft_s,
        ttft_spare_s=None if goal is None or ttft_s is None else _spare(goal.seconds, ttft_s),
        cost_spare=None if limit is None or cost is None else _spare(limit, cost),
    )


def _ttft_s(site: Site, demand: Demand, constraints: Constraints, found: Plan) -> float | None:
    goal = constraints.ttft
    if goal is None:
        return None
    used = with_link_share(site, constraints.link_share)
    used = used.resized(found.n_prfaas, site.pd.instances)
    arrival = arrival_of(used.remotes, used.pd.profile, transfer=True)
    if goal.quantile is not None:
        return arrival.quantile_s(demand.lengths, found.threshold_tokens, goal.quantile)
    at = np.array([float(found.threshold_tokens)])
    return float(arrival.mean_s(demand.lengths, at)[0])


def _spare(limit: float, value: float) -> float:
    spare = limit - value
    return 0.0 if abs(spare) <= _EQUAL * limit else spare
