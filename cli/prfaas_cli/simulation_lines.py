"""A comparison of policies for a person: latencies, then what was used, then what each models."""

import math
from collections.abc import Iterator

from prfaas_cli.output import table
from prfaas_cli.simulation import Comparison, Run

LATENCY_HEAD = (
    "POLICY", "LAMBDA_MAX", "RATE", "TTFT MEAN", "P50", "P90", "P99", "E2E P90", "TPOT P99",
    "GOODPUT", "SLO MET",
)  # fmt: skip
USE_HEAD = (
    "POLICY", "OFFLOADED", "PRFAAS PREFILL", "PD PREFILL", "PD DECODE", "LINK", "LINK PEAK",
    "QUEUE", "PREFILL", "TRANSFER", "DECODE", "DIGEST",
)  # fmt: skip


def lines_of(comparison: Comparison) -> Iterator[str]:
    """Give the lines of a comparison."""
    yield from head_of(comparison)
    yield ""
    yield from table([LATENCY_HEAD, *map(latency_row, comparison.runs)])
    yield ""
    yield from table([USE_HEAD, *map(use_row, comparison.runs)])
    yield ""
    for run in comparison.runs:
        contender = run.contender
        yield f"{contender.name}: {contender.models}; {contender.note}"
        yield f"    source: {contender.source}"
        yield from (f"    {trouble}" for trouble in troubles_of(run))
    yield f"digest {comparison.digest}"


def head_of(comparison: Comparison) -> Iterator[str]:
    """Give what was simulated, in words."""
    question = comparison.question
    what = "a trace" if question.trace else f"{question.arrivals.text} arrivals"
    counted = comparison.runs[0].summary.counts.requests
    yield f"case {question.case.name}, {what}, {_count_of(comparison)}, seed {question.seed}"
    yield (
        f"measured: {counted} requests after the warm-up; SLO: TTFT {question.slo.ttft_s:g} s,"
        f" TPOT {question.slo.tpot_s * 1e3:g} ms; seconds but for TPOT (ms), rates per second"
    )


def latency_row(run: Run) -> tuple[str, ...]:
    """Return a contender's row of latencies."""
    found = run.summary
    mark = "" if found.stable else " unstable"
    return (
        run.contender.name + mark,
        f"{run.contender.lambda_max:.2f}",
        f"{run.rate_per_s:.2f}",
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


def troubles_of(run: Run) -> Iterator[str]:
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
    if not run.summary.stable:
        yield f"unstable: the delay grew by {run.summary.growth:.3f} s per second"


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
