"""A comparison of policies for a person: latencies, then what was used, then what each models."""

import math
from collections.abc import Iterator

from prfaas.sim.scenario import Fault, FaultKind
from prfaas_cli.output import table
from prfaas_cli.simulation import Comparison, Question, Run

LATENCY_HEAD = (
    "POLICY", "LAMBDA_MAX", "RATE", "OFFERED", "TTFT MEAN", "P50", "P90", "P99", "E2E P90",
    "TPOT P99", "GOODPUT", "SLO MET",
)  # fmt: skip
USE_HEAD = (
    "POLICY", "OFFLOADED", "PRFAAS PREFILL", "PD PREFILL", "PD DECODE", "LINK", "LINK PEAK",
    "QUEUE", "PREFILL", "TRANSFER", "DECODE", "DIGEST",
)  # fmt: skip


CLUSTER_HEAD = (
    "POLICY", "CLUSTER", "INSTANCES", "OFFLOADED", "PREFILL", "LINK", "LINK PEAK",
)  # fmt: skip


def lines_of(comparison: Comparison) -> Iterator[str]:
    """Give the lines of a comparison."""
    yield from head_of(comparison)
    yield ""
    for rows in tables_of(comparison):
        yield from table(rows)
        yield ""
    alike = list(alike_of(comparison))
    yield from [*alike, ""] if alike else []
    for run in comparison.runs:
        contender = run.contender
        yield f"{contender.name}: {contender.models}; {contender.note}"
        yield f"    source: {contender.source}"
        yield from (f"    {fact}" for fact in facts_of(comparison.question, run))
    yield f"digest {comparison.digest}"


def tables_of(comparison: Comparison) -> Iterator[list[tuple[str, ...]]]:
    """Give the tables; that of clusters where a policy has more than one PrfaaS cluster."""
    yield [LATENCY_HEAD, *map(latency_row, comparison.runs)]
    yield [USE_HEAD, *map(use_row, comparison.runs)]
    rows = [row for run in comparison.runs for row in cluster_rows(run)]
    if rows:
        yield [CLUSTER_HEAD, *rows]


def alike_of(comparison: Comparison) -> Iterator[str]:
    """Say which policies did the same with every request: a table alone would look broken."""
    groups: dict[str, list[str]] = {}
    for run in comparison.runs:
        groups.setdefault(run.digest, []).append(run.contender.name)
    for names in groups.values():
        if len(names) > 1:
            yield f"{', '.join(names)}: the same figures, as they chose alike for every request"


def head_of(comparison: Comparison) -> Iterator[str]:
    """Give what was simulated, in words."""
    question = comparison.question
    what = "a trace" if question.trace else f"{question.arrivals.text} arrivals"
    counted = comparison.runs[0].summary.counts.requests
    yield f"case {question.case.name}, {what}, {_count_of(comparison)}, seed {question.seed}"
    yield f"plans and Lambda_max: --expectation {question.expectation} (that of plan is mean)"
    yield (
        f"measured: {counted} requests after the warm-up; SLO: TTFT {question.slo.ttft_s:g} s,"
        f" TPOT {question.slo.tpot_s * 1e3:g} ms; seconds but for TPOT (ms), rates per second"
    )


def latency_row(run: Run) -> tuple[str, ...]:
    """Return a contender's row of latencies."""
    found = run.summary
    mark = " overloaded" if run.overloaded else ""
    mark = mark if found.stable else " unstable"
    return (
        run.contender.name + mark,
        f"{run.contender.lambda_max:.2f}",
        f"{run.rate_per_s:.2f}",
        f"{found.offered_per_s:.2f}",
        *(seconds(value) for value in (found.ttft.mean, found.ttft.p50)),
        *(seconds(value) for value in (found.ttft.p90, found.ttft.p99)),
        seconds(found.e2e.p90),
        seconds(found.tpot.p99 * 1e3, 1),
        f"{found.goodput_per_s:.2f}",
        f"{found.attainment:.1%}",
    )


def use_row(run: Run) -> tuple[str, ...]:
    """Return a contender's row of what was used, and of what its TTFT consists."""
    found = run.summary
    use, link, parts = found.utilisation, found.link, found.breakdown
    shares = (found.offload_fraction, use.prfaas_prefill, use.pd_prefill, use.pd_decode)
    times = (parts.queueing_s, parts.prefill_s, parts.transfer_s, parts.decode_s)
    return (
        run.contender.name,
        *(f"{share:.1%}" for share in (*shares, link.share, link.peak_share)),
        *(seconds(value, 3) for value in times),
        run.digest,
    )


def cluster_rows(run: Run) -> Iterator[tuple[str, ...]]:
    """Give a row of each PrfaaS cluster, where there is more than one."""
    clusters = run.summary.clusters
    for use in clusters if len(clusters) > 1 else ():
        shares = (use.offloaded / run.summary.counts.requests, use.prefill)
        shown = (f"{share:.1%}" for share in (*shares, use.link.share, use.link.peak_share))
        yield (run.contender.name, use.name, str(use.instances), *shown)


def facts_of(question: Question, run: Run) -> Iterator[str]:
    """Give what a run had, how long it was, and what went wrong, if anything did."""
    yield _hardware_of(question, run)
    yield (
        f"requests came until {run.summary.span_s:.0f} s, the run ended at"
        f" {run.summary.end_s:.0f} s"
    )
    if run.replanned is not None:
        now = run.replanned
        yield (
            f"re-planning: revisions {now.revisions}, conversions {now.conversions};"
            f" at the end t = {now.threshold_tokens:,}, N_p/N_d = {now.n_p}/{now.n_d}"
        )
    yield from troubles_of(question, run)


def troubles_of(question: Question, run: Run) -> Iterator[str]:
    """Give what went wrong, if anything did."""
    counts = run.summary.counts
    parts = {
        "refused": counts.refused,
        "open at the end": counts.open,
        "fallbacks": counts.fallbacks,
        "retries": counts.retries,
    }
    told = ", ".join(f"{name} {count}" for name, count in parts.items() if count)
    if told:
        yield f"of {counts.requests}: {told}"
    if run.overloaded:
        yield (
            f"overloaded: {run.summary.offered_per_s:.2f} requests per second came,"
            f" Lambda_max is {run.contender.lambda_max:.2f}"
        )
    if not run.summary.stable:
        yield f"unstable: the delay grew by {run.summary.growth:.3f} s per second"
    for fault in question.faults:
        if fault.at_s >= run.summary.end_s:
            yield f"fault without effect: {fault_words(fault)}: after the end of the run"


def fault_words(fault: Fault) -> str:
    """Return a fault for a person.

    >>> fault_words(Fault(5.0, 6.0, FaultKind.LINK_RATE, "far", 0.5))
    'link far = 0.5 from 5 s to 6 s'
    """
    value = "" if fault.kind is FaultKind.KILL else f" = {fault.value:g}"
    kind = "link" if fault.kind is FaultKind.LINK_RATE else str(fault.kind)
    return f"{kind} {fault.target}{value} from {fault.at_s:g} s to {fault.until_s:g} s"


def _hardware_of(question: Question, run: Run) -> str:
    used = ", ".join(f"{name} {count}" for name, count in run.instances.items())
    cost = run.cost_per_hour(question.case.site.prices)
    return f"instances: {used}" + ("" if cost is None else f"; cost per hour {cost:g}")


def seconds(value: float, digits: int = 2) -> str:
    """Return seconds for a table.

    >>> seconds(3.14159), seconds(1234.5), seconds(float("nan"))
    ('3.14', '1234', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.{digits}f}" if value < 1000 else f"{value:.0f}"


def _count_of(comparison: Comparison) -> str:
    count = comparison.question.requests
    return f"{count} requests" if count else "all requests"
