"""A study for a person: the plan beside its baselines, each stage's load, what more would bring."""

from collections.abc import Iterator

from prfaas.planning import Change, More, Plan
from prfaas.throughput import Stage
from prfaas.units import format_rate
from prfaas_cli.output import table
from prfaas_cli.plan_rent import rent_cells, rent_of
from prfaas_cli.plan_study import (
    Study,
    baselines_of,
    breaks_cost,
    limits,
    ratios,
    requests_per_cost,
)

_STAGES = {
    Stage.PRFAAS_PREFILL: "prefill of the PrfaaS clusters",
    Stage.LINK: "link",
    Stage.PD_PREFILL: "local prefill",
    Stage.PD_DECODE: "decode",
}


def lines_of(study: Study) -> Iterator[str]:
    """Give the lines of a study."""
    yield from _head(study)
    yield ""
    rents = rent_of(study.case.site, study.plan)
    yield from table(list(rent_cells(rents, study.plan.cost_per_hour)))
    yield from _kept(study)
    yield ""
    yield from table(comparison(study))
    yield ""
    yield from table(_stages(study))
    yield ""
    yield from _traffic(study)
    yield from _more(study)


def comparison(study: Study) -> list[list[str]]:
    """Return the rows of the paper's Table 6: the plan and its baselines."""
    columns = {"PrfaaS-PD": study.plan, **baselines_of(study)}
    shown = {name: found for name, found in columns.items() if found is not None}
    keys = ("plan", *shown)[1:]
    ratio = ratios(study) | {"PrfaaS-PD": ratios(study)["plan"]}
    rows = [["", *(_titles.get(name, name) for name in keys)]]
    rows += [[title, *(cell(shown[name]) for name in keys)] for title, cell in _ROWS]
    rows.append(["ratio", *(_number(ratio[name]) for name in keys)])
    if study.plan.cost_per_hour:
        rows.append(
            ["requests per price", *(_number(requests_per_cost(p), 0) for p in shown.values())]
        )
        rows.append(["cost per hour", *(_cost(study, found) for found in shown.values())])
    if study.case.constraints.ttft is not None:
        rows.append(["TTFT of the goal (s)", *(_late(study, found) for found in shown.values())])
    return rows


def _cost(study: Study, found: Plan) -> str:
    over = ", above the limit" if breaks_cost(study, found) else ""
    return _number(found.cost_per_hour) + over


def _late(study: Study, found: Plan) -> str:
    at = limits(study, found)
    missed = ", misses the goal" if "ttft_s" in at.breaks else ""
    return _number(at.ttft_s) + missed


def _kept(study: Study) -> Iterator[str]:
    """Say by how much the plan keeps the limits of TTFT and cost."""
    at, constraints = limits(study, study.plan), study.case.constraints
    goal, limit = constraints.ttft, constraints.max_cost_per_hour
    if goal is not None and at.ttft_s is not None and at.ttft_spare_s is not None:
        of = "mean" if goal.quantile is None else f"P{goal.quantile * 100:g}"
        yield (
            f"TTFT goal: {of} with transfer of at most {goal.seconds:.2f} s: kept,"
            f" {at.ttft_s:.2f} s, {at.ttft_spare_s:.2f} s to spare"
        )
    if limit is not None and at.cost_spare is not None:
        yield f"cost limit: {limit:.2f} per hour: kept, {at.cost_spare:.2f} to spare"


_titles = {"homogeneous": "homogeneous PD", "naive": "naive heterogeneous PD"}


def _threshold(found: Plan) -> str:
    offloaded = found.stages.offload_fraction
    return str(found.threshold_tokens) if 0 < offloaded < 1 else "-"


def _counts(found: Plan) -> str:
    counts = (sum(found.n_prfaas), found.n_p, found.n_d)
    return " / ".join(str(count) if count else "-" for count in counts)


def _thetas(found: Plan) -> str:
    at = found.stages
    thetas = (at.theta_prfaas, at.theta_pd_p, at.theta_pd_d)
    return " / ".join(f"{theta:.2f}" if theta else "-" for theta in thetas)


_ROWS = (
    ("threshold t (tokens)", _threshold),
    ("N_prfaas / N_p / N_d", _counts),
    (
        "TTFT mean / P90 (s)",
        lambda found: f"{found.ttft.prefill_mean_s:.2f} / {found.ttft.prefill_p90_s:.2f}",
    ),
    (
        "  with transfer",
        lambda found: f"{found.ttft.arrival_mean_s:.2f} / {found.ttft.arrival_p90_s:.2f}",
    ),
    ("Theta_prfaas / pd_p / pd_d", _thetas),
    ("Lambda_max (req/s)", lambda found: f"{found.lambda_max:.2f}"),
)


def _head(study: Study) -> Iterator[str]:
    site = study.case.site
    yield f"case {study.case.name}, expectation {study.expectation}"
    for remote in site.remotes:
        rate = format_rate(remote.egress_bytes_per_s * 8)
        share = "" if remote.link_share == 1 else f", of which {remote.link_share:.0%}"
        yield f"{remote.name}: {remote.instances} x {remote.profile.name}, link {rate}{share}"
    yield f"{site.pd.name}: {site.pd.instances} x {site.pd.profile.name}"


def _stages(study: Study) -> list[list[str]]:
    at = study.plan.stages
    rows = [["STAGE", "LOAD", ""]]
    for stage, title in _STAGES.items():
        mark = "bottleneck" if stage is at.bottleneck else ""
        rows.append([title, f"{at.utilisation.of(stage):.1%}", mark])
    if len(at.clusters) > 1:
        for cluster in at.clusters:
            loads = f"{cluster.prefill_utilisation:.1%}, link {cluster.link_utilisation:.1%}"
            rows.append([f"  {cluster.name}", loads, f"{cluster.share:.1%} of the offloaded"])
    return rows


def _traffic(study: Study) -> Iterator[str]:
    at = study.plan.stages
    rate = format_rate(at.egress_bytes_per_s * 8)
    yield (
        f"offloaded: {at.offload_fraction:.1%} of requests, {at.l_long_tokens:.0f} tokens in the"
        f" mean, {rate} of egress; the others: {at.l_short_tokens:.0f} tokens"
    )
    yield "TTFT is prefill alone, as the paper prints it; queue and first decode step come on top"


def _more(study: Study) -> Iterator[str]:
    for change in study.changes:
        after = change.plan
        yield (
            f"{_what(change)}: {after.lambda_max:.2f} req/s ({change.gain:+.2f}), with"
            f" t = {after.threshold_tokens}, N_p / N_d = {after.n_p} / {after.n_d}"
            + _over(study, after)
        )


def _over(study: Study, after: Plan) -> str:
    if not breaks_cost(study, after):
        return ""
    return f"; costs {_number(after.cost_per_hour)} per hour, above the limit"


def _what(change: Change) -> str:
    if change.more is More.LINK:
        return f"10 Gbps more for {change.cluster}"
    return f"one more instance of {change.cluster}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
