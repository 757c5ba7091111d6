"""The results of a campaign for a person: what was measured, beside what was predicted."""

import math
from collections.abc import Iterator

from prfaas.sim.summary import Percentiles
from prfaas_cli.campaign_results import Results
from prfaas_cli.output import table
from prfaas_loadtest.campaigns import Summary

_LATE_S = 0.05
"""A sender that is later than that in 1 of 100 requests measures itself."""


def lines_of(results: Results) -> Iterator[str]:
    """Give the lines of a run."""
    yield head_of(results)
    yield ""
    yield from table(latency_rows(results))
    yield ""
    yield from table(rate_rows(results))
    yield ""
    if len(results.summary.tenants) > 1:
        yield from table(tenant_rows(results))
        yield ""
    yield from notes_of(results)


def head_of(results: Results) -> str:
    """Return what was measured, in words."""
    summary, slo = results.summary, results.campaign.slo
    begin_s, end_s = summary.window_s
    return (
        f"campaign {results.campaign.name}: {summary.requests} requests due from {begin_s:.0f} s"
        f" to {end_s:.0f} s; SLO: TTFT {slo.ttft_s:g} s, TPOT {slo.tpot_s * 1e3:g} ms;"
        " latencies from the time when a request was due"
    )


def latency_rows(results: Results) -> list[tuple[str, ...]]:
    """Return the table of latencies."""
    summary = results.summary
    rows: list[tuple[str, ...]] = [("", "MEAN", "P50", "P90", "P95", "P99")]
    rows.append(("TTFT (s)", *_cells(summary.ttft, 1.0, 3)))
    if results.prediction is not None:
        told = results.prediction
        rows.append(("  simulated", *_cells(told.simulated.ttft, 1.0, 3)))
        bare = (told.bare_ttft_mean_s, math.nan, told.bare_ttft_p90_s, math.nan, math.nan)
        rows.append(("  planned, no queues", *(shown(value, 3) for value in bare)))
    rows.append(("TPOT (ms)", *_cells(summary.tpot, 1e3, 2)))
    rows.append(("ITL (ms)", *_cells(summary.itl, 1e3, 2)))
    rows.append(("E2E (s)", *_cells(summary.e2e, 1.0, 2)))
    rows.append(("sender late (ms)", *_cells(summary.lag, 1e3, 2)))
    return rows


def rate_rows(results: Results) -> list[tuple[str, ...]]:
    """Return the table of rates, per second."""
    told, egress = results.prediction, results.egress
    measured_bits = math.nan if egress is None else egress.mean_bits_per_s
    share = math.nan if egress is None or egress.share is None else egress.share
    rows: list[tuple[str, ...]] = [
        (
            "", "OFFERED", "FIRST TOKENS", "ANSWERS", "GOODPUT", "SLO MET", "OFFLOADED",
            "EGRESS (Gbps)", "OF LINK", "STABLE",
        ),
        _rate_row("measured", results.summary, measured_bits, share),
    ]  # fmt: skip
    if told is not None:
        bits = told.simulated_egress_bits_per_s
        part = share * bits / measured_bits if measured_bits else math.nan
        rows.append(_rate_row("simulated", told.simulated, bits, part))
        rows.append(
            (
                "planned, at most", "-", shown(told.lambda_max, 3), "-", "-", "-",
                f"{told.offload_fraction:.1%}", shown(told.egress_bits_per_s / 1e9, 3), "-", "-",
            )
        )  # fmt: skip
    return rows


def _rate_row(name: str, found: Summary, bits_per_s: float, share: float) -> tuple[str, ...]:
    return (
        name,
        shown(found.offered_per_s, 3),
        shown(found.throughput_per_s, 3),
        shown(found.answers_per_s, 3),
        shown(found.goodput_per_s, 3),
        f"{found.attainment:.1%}",
        f"{found.offload_fraction:.1%}",
        shown(bits_per_s / 1e9, 3),
        "-" if math.isnan(share) else f"{share:.1%}",
        "yes" if found.stable else "no",
    )


def tenant_rows(results: Results) -> list[tuple[str, ...]]:
    """Return the table of tenants."""
    rows: list[tuple[str, ...]] = [("TENANT", "REQUESTS", "SLO MET", "TTFT MEAN", "P90", "P99")]
    for name, tenant in results.summary.tenants.items():
        values = (tenant.ttft.mean, tenant.ttft.p90, tenant.ttft.p99)
        rows.append(
            (name, str(tenant.requests), f"{tenant.attainment:.1%}", *(shown(v, 3) for v in values))
        )
    return rows


def notes_of(results: Results) -> Iterator[str]:
    """Give what went wrong or must be known, and the routes."""
    summary = results.summary
    routes = ", ".join(f"{name} {count}" for name, count in sorted(summary.routes.items()))
    yield f"routes: {routes}"
    for cause, count in sorted(summary.errors.items(), key=lambda item: -item[1])[:10]:
        yield f"failed: {count} x {cause}"
    if summary.miscounted:
        yield f"{summary.miscounted} prompts have another number of tokens at the gateway"
    if not summary.stable:
        yield f"unstable: TTFT grew by {summary.growth:.3f} s per second"
    if summary.lag.p99 > _LATE_S:
        yield (
            f"the sender was {summary.lag.p99 * 1e3:.0f} ms late at its P99: this machine is too"
            " slow for the load; use --workers, or a larger dilation"
        )


def _cells(found: Percentiles, factor: float, digits: int) -> tuple[str, ...]:
    values = (found.mean, found.p50, found.p90, found.p95, found.p99)
    return tuple(shown(value * factor, digits) for value in values)


def shown(value: float, digits: int) -> str:
    """Return a number, or a dash where there is none.

    >>> shown(1.23456, 2), shown(float("nan"), 2)
    ('1.23', '-')
    """
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
