"""What a plan needs of each cluster: the instances used and left idle, and their price."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prfaas.planning import Plan, Site


@dataclass(frozen=True, slots=True)
class Rent:
    """One cluster's instances; `cost_per_hour` is of those used, None without a price."""

    cluster: str
    profile: str
    hardware: str
    used: int
    idle: int
    roles: str
    cost_per_hour: float | None


def rent_of(site: Site, found: Plan) -> list[Rent]:
    """Return what the plan uses of every cluster of the site."""
    used = (*found.n_prfaas, found.n_p + found.n_d)
    rows = []
    for cluster, count in zip(site.clusters, used, strict=True):
        price = site.prices.get(cluster.profile.hardware)
        is_pd = cluster is site.pd
        rows.append(
            Rent(
                cluster=cluster.name,
                profile=cluster.profile.name,
                hardware=cluster.profile.hardware,
                used=count,
                idle=cluster.instances - count,
                roles=f"{found.n_p} prefill, {found.n_d} decode" if is_pd else f"{count} prefill",
                cost_per_hour=None if price is None else price * count,
            )
        )
    return rows


def rent_document(rows: Sequence[Rent]) -> list[dict[str, Any]]:
    """Return the rows as plain JSON values."""
    return [asdict(row) for row in rows]


def rent_cells(rows: Sequence[Rent], cost_per_hour: float | None) -> Iterator[list[str]]:
    """Give the rows of a table with its sum below; without prices it says nothing of cost."""
    priced = any(row.cost_per_hour is not None for row in rows)
    last = ["COST PER HOUR"] if priced else []
    yield ["TO RENT", "USED", "IDLE", "ROLES", "HARDWARE", *last]
    for row in rows:
        cost = [_money(row.cost_per_hour)] if priced else []
        yield [row.cluster, str(row.used), str(row.idle), row.roles, row.hardware, *cost]
    if priced:
        used, idle = sum(row.used for row in rows), sum(row.idle for row in rows)
        yield ["in all", str(used), str(idle), "", "", _money(cost_per_hour)]


def _money(value: float | None) -> str:
    return "no price" if value is None else f"{value:.2f}"
