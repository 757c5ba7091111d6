"""What a plan is compared to: the same demand without a PrfaaS cluster, and with one used naively.

Source: PrfaaS §4.1, Table 6.
"""

from dataclasses import dataclass, replace

from prfaas.planning.search import Plan, plan
from prfaas.planning.site import Constraints, Site
from prfaas.throughput import Demand, Expectation


@dataclass(frozen=True, slots=True)
class Baselines:
    """`homogeneous` has local instances only, at their best N_p:N_d. `naive` prefills everything
    on the PrfaaS clusters and has N_p = 0; None for a site without PrfaaS clusters."""

    homogeneous: Plan
    naive: Plan | None


def baselines(
    site: Site,
    demand: Demand,
    constraints: Constraints | None = None,
    *,
    expectation: Expectation = Expectation.MEAN_LENGTH,
) -> Baselines:
    """Return both baselines. They keep the TPOT and the link share, no other constraint."""
    share = (constraints or Constraints()).link_share
    count = site.homogeneous_instances or site.instances
    alone = replace(site, remotes=(), pd=replace(site.pd, instances=count))
    never = Constraints(threshold_tokens=float("inf"))
    naive = Constraints(threshold_tokens=0.0, n_p=0, link_share=share)
    return Baselines(
        homogeneous=plan(alone, demand, never, expectation=expectation),
        naive=plan(site, demand, naive, expectation=expectation) if site.remotes else None,
    )
