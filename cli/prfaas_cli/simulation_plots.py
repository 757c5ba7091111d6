"""Figures of a comparison as SVG text that takes the page's colour and width."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prfaas.sim.policies.contender import CONTENDERS
from prfaas.sim.summary import CURVE
from prfaas_cli.simulation import Comparison, Run
from prfaas_cli.svg_plots import Plot, looks, plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_STAGES = {
    "prfaas_prefill": "PrfaaS prefill",
    "pd_prefill": "PD prefill",
    "pd_decode": "PD decode",
    "link": "link",
}
_QUEUES = {
    "queued": "waiting for prefill",
    "prefill": "in prefill",
    "transfer": "in transfer",
    "decode_wait": "waiting for decode",
    "decode": "in decode",
}


def plots_of(comparison: Comparison) -> list[Plot]:
    """Return the figures: those that compare, then two of each policy."""
    runs = comparison.runs
    linked = [run for run in runs if run.contender.deployment.remotes]
    found = [
        _plot("TTFT", "share of requests whose first token came by then", runs, _draw_ttft),
        _plot("TTFT over time", "P90 of the requests that arrived then", runs, _draw_p90),
        _plot("Waiting requests", "for prefill or for a decode batch", runs, _draw_waiting),
    ]
    if linked:
        words = "share of what may be used of the links"
        found.insert(2, _plot("Link use", words, linked, _draw_link))
    return [*found, *(plot for run in runs for plot in _plots_of_run(run))]


def _plots_of_run(run: Run) -> Iterator[Plot]:
    name = run.contender.name
    yield _plot(f"{name}: utilisation", "share of each stage in use", [run], _draw_stages)
    yield _plot(f"{name}: requests", "how many are in each stage", [run], _draw_requests)


def _plot(title: str, words: str, runs: Sequence[Run], draw: Callable[..., None]) -> Plot:
    return plot(title, words, lambda axes: draw(axes, runs))


def _looks_of(run: Run) -> dict[str, Any]:
    """Return the same looks for a policy in all figures."""
    return looks(CONTENDERS.index(run.contender.name))


def _draw_ttft(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        seconds = np.maximum(run.summary.ttft_curve_s, 1e-3)
        axes.plot(seconds, CURVE, label=run.contender.name, **_looks_of(run))
    axes.set(xscale="log", xlabel="TTFT (s)", ylabel="share of requests", ylim=(0, 1))


def _draw_p90(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        series = run.summary.series
        _over_time(axes, series.edges_s, series.ttft_p90_s, run.contender.name, _looks_of(run))
    axes.set(yscale="log", ylabel="TTFT P90 (s)")


def _draw_link(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        series = run.summary.series
        _over_time(axes, series.edges_s, series.link, run.contender.name, _looks_of(run))
    axes.set(ylabel="share of the links", ylim=(0, None))


def _draw_waiting(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        series = run.summary.series
        waiting = series.requests["queued"] + series.requests["decode_wait"]
        _over_time(axes, series.edges_s, waiting, run.contender.name, _looks_of(run))
    axes.set(yscale="symlog", ylabel="requests", ylim=(0, None))


def _draw_stages(axes: "Axes", runs: Sequence[Run]) -> None:
    series = runs[0].summary.series
    for index, (name, title) in enumerate(_STAGES.items()):
        shares = getattr(series, name)
        if shares.any():
            _over_time(axes, series.edges_s, shares, title, looks(index))
    axes.set(ylabel="share in use", ylim=(0, 1.05))


def _draw_requests(axes: "Axes", runs: Sequence[Run]) -> None:
    series = runs[0].summary.series
    for index, (name, title) in enumerate(_QUEUES.items()):
        _over_time(axes, series.edges_s, series.requests[name], title, looks(index))
    axes.set(yscale="symlog", ylabel="requests", ylim=(0, None))


def _over_time(
    axes: "Axes", edges_s: Floats, values: Floats, label: str, looks: dict[str, Any]
) -> None:
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    axes.plot(middles_s, values, label=label, linewidth=1.2, **looks)
    axes.set_xlabel("time (s)")
