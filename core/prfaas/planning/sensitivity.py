"""What one more instance, or a faster link, would bring after planning anew."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from prfaas.planning.search import Plan, plan
from prfaas.planning.site import Constraints, Site
from prfaas.throughput import Demand, Expectation

LINK_STEP_BYTES_PER_S = 10e9 / 8
"""10 Gbps."""


class More(StrEnum):
    """What there is more of."""

    INSTANCE = "instance"
    """One instance."""
    LINK = "link"
    """10 Gbps of egress."""


@dataclass(frozen=True, slots=True)
class Change:
    """More of something in one cluster; `gain` is in requests per second over the plan."""

    more: More
    cluster: str
    plan: Plan
    gain: float


def sensitivity(
    site: Site,
    demand: Demand,
    found: Plan,
    constraints: Constraints | None = None,
    *,
    expectation: Expectation = Expectation.MEAN_LENGTH,
) -> tuple[Change, ...]:
    """Return the changes: an instance more of each cluster, 10 Gbps more of each link.

    Threshold and roles are searched again each time, whatever was fixed for `found`; the limit of
    cost does not count, since it is what more would cost that is asked.
    """
    free = replace(
        constraints or Constraints(),
        max_cost_per_hour=None,
        threshold_tokens=None,
        n_p=None,
        n_d=None,
    )
    used = site.resized(found.n_prfaas, found.n_p + found.n_d)
    before = plan(used, demand, free, expectation=expectation).lambda_max
    return tuple(
        Change(more, cluster, after, after.lambda_max - before)
        for more, cluster, larger in _larger(used)
        for after in (plan(larger, demand, free, expectation=expectation),)
    )


def _larger(site: Site) -> Iterator[tuple[More, str, Site]]:
    counts = [remote.instances for remote in site.remotes]
    pd = site.pd.instances
    for index, remote in enumerate(site.remotes):
        grown = [count + (i == index) for i, count in enumerate(counts)]
        yield More.INSTANCE, remote.name, site.resized(grown, pd)
    yield More.INSTANCE, site.pd.name, site.resized(counts, pd + 1)
    for index, remote in enumerate(site.remotes):
        faster = replace(
            remote, egress_bytes_per_s=remote.egress_bytes_per_s + LINK_STEP_BYTES_PER_S
        )
        remotes = (*site.remotes[:index], faster, *site.remotes[index + 1 :])
        yield More.LINK, remote.name, replace(site, remotes=remotes)
