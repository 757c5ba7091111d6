"""Two runs of campaigns side by side."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas_cli.campaign_lines import shown
from prfaas_cli.campaign_results import Results, read_results
from prfaas_cli.output import Output, table
from prfaas_loadtest.campaigns.run import RunFolder
from prfaas_loadtest.campaigns.summary import Columns

Floats = NDArray[np.float64]

_RESAMPLES = 1000
_INTERVAL = (0.025, 0.975)
_ROWS: tuple[tuple[str, Callable[[Results], float]], ...] = (
    ("offered (1/s)", lambda r: r.summary.offered_per_s),
    ("first tokens (1/s)", lambda r: r.summary.throughput_per_s),
    ("goodput (1/s)", lambda r: r.summary.goodput_per_s),
    ("SLO met", lambda r: r.summary.attainment),
    ("offloaded", lambda r: r.summary.offload_fraction),
    ("TTFT mean (s)", lambda r: r.summary.ttft.mean),
    ("TTFT P50 (s)", lambda r: r.summary.ttft.p50),
    ("TTFT P90 (s)", lambda r: r.summary.ttft.p90),
    ("TTFT P99 (s)", lambda r: r.summary.ttft.p99),
    ("TPOT mean (s)", lambda r: r.summary.tpot.mean),
    ("TPOT P99 (s)", lambda r: r.summary.tpot.p99),
    ("E2E P90 (s)", lambda r: r.summary.e2e.p90),
    ("egress (Gbps)", lambda r: r.egress.mean_bits_per_s / 1e9 if r.egress else math.nan),
)


def compare_runs(first: Path, second: Path, output: Output) -> None:
    """Give both runs' figures and what of the difference in TTFT chance may have made.

    Raises:
        StateError: one of them is no run.
    """
    runs = [read_results(RunFolder(path), predicted=False) for path in (first, second)]
    pairs = {title: tuple(figure(run) for run in runs) for title, figure in _ROWS}
    interval = ttft_difference(*runs)
    document = {
        "first": str(first),
        "second": str(second),
        "figures": {title: list(values) for title, values in pairs.items()},
        "ttft_mean_difference_s": list(interval),
        "same_requests": _same_requests(*runs),
    }
    output.result(document, lambda: _lines(document, pairs, interval))


def ttft_difference(first: Results, second: Results) -> tuple[float, float]:
    """Return where the difference of the mean TTFTs (second less first) lies, 95 % of the time.

    Of requests that both runs have, pair by pair, resampled with a fixed seed. Neighbours in one
    queue are not independent, so that the true interval is somewhat wider.
    """
    times = [_measured(results) for results in (first, second)]
    both = sorted(times[0].keys() & times[1].keys())
    if not both:
        return math.nan, math.nan
    gaps = np.array([times[1][index] - times[0][index] for index in both])
    picks = np.random.default_rng(1).integers(len(gaps), size=(_RESAMPLES, len(gaps)))
    low, high = np.quantile(gaps[picks].mean(axis=1), _INTERVAL).tolist()
    return low, high


def _measured(results: Results) -> dict[int, float]:
    columns = Columns.of(results.samples, results.facts.dilation)
    begin_s, _ = results.summary.window_s
    kept = (columns.due_s >= begin_s) & ~np.isnan(columns.ttft_s)
    rows = zip(results.samples, kept.tolist(), columns.ttft_s.tolist(), strict=True)
    return {sample.index: ttft_s for sample, keep, ttft_s in rows if keep}


def _same_requests(first: Results, second: Results) -> bool:
    """Return whether both asked the same: lengths, index by index."""
    asked = [
        {sample.index: (sample.prompt_tokens, sample.wanted) for sample in results.samples}
        for results in (first, second)
    ]
    both = asked[0].keys() & asked[1].keys()
    return bool(both) and all(asked[0][index] == asked[1][index] for index in both)


def _lines(
    document: dict[str, Any],
    pairs: dict[str, tuple[float, ...]],
    interval: tuple[float, float],
) -> Iterator[str]:
    yield f"A: {document['first']}"
    yield f"B: {document['second']}"
    rows = [("", "A", "B", "B / A")]
    for title, (first, second) in pairs.items():
        ratio = second / first if first else math.nan
        rows.append((title, shown(first, 3), shown(second, 3), shown(ratio, 3)))
    yield from table(rows)
    if not document["same_requests"]:
        yield "they asked different things: other lengths for the same number of a request"
        return
    low, high = interval
    if math.isnan(low):
        yield "no request was measured in both"
        return
    verdict = "more than chance" if low > 0 or high < 0 else "may be chance"
    yield f"TTFT, B less A, request by request: {low:+.3f} to {high:+.3f} s (95 %): {verdict}"
