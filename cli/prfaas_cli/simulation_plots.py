"""Figures of a comparison as SVG text that takes the page's colour and width."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prfaas.sim.policies.contender import CONTENDERS
from prfaas.sim.summary import CURVE
from prfaas_cli.simulation import Comparison, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_INCHES = (6.4, 3.6)
#: Stands for the colour of the page's text until the SVG is in the page.
_TEXT = "#0a0b0c"
#: Told apart by eye on white and on black, by those who see few colours too.
_COLOURS = (
    "#0088cc", "#e07b00", "#009e73", "#cc5599", "#8a8a00", "#7a6ff0", "#d0453a", "#888888",
)  # fmt: skip
_STYLES = ("-", "--", "-.", ":")
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


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure: its heading, what it shows in words, and an `<svg>` element."""

    title: str
    words: str
    svg: str


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
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    with mpl.rc_context(_style(title)):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor("none")
        axes.grid(visible=True, alpha=0.25)
        draw(axes, runs)
        axes.legend(frameon=False, fontsize="small", ncols=2)
        file = io.StringIO()
        none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=none)
    return Plot(title, words, _inline(file.getvalue(), title))


def _style(title: str) -> dict[Any, Any]:
    """Return settings by which the same runs give the same bytes, and text stays text."""
    style = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif"}
    parts = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return style | dict.fromkeys(parts, _TEXT)


def _inline(svg: str, title: str) -> str:
    """Return the bare element, as wide as its place allows, in the colour of the text around."""
    svg = svg[svg.index("<svg") :].replace(_TEXT, "currentColor")
    size = re.compile(r' (?:width|height)="[\d.]+pt"')
    return size.sub("", svg, count=2).replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def _looks_of(run: Run) -> dict[str, Any]:
    """Return the same looks for a policy in all figures."""
    return _looks(CONTENDERS.index(run.contender.name))


def _looks(index: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "linestyle": _STYLES[index // 2 % len(_STYLES)],
    }


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
            _over_time(axes, series.edges_s, shares, title, _looks(index))
    axes.set(ylabel="share in use", ylim=(0, 1.05))


def _draw_requests(axes: "Axes", runs: Sequence[Run]) -> None:
    series = runs[0].summary.series
    for index, (name, title) in enumerate(_QUEUES.items()):
        _over_time(axes, series.edges_s, series.requests[name], title, _looks(index))
    axes.set(yscale="symlog", ylabel="requests", ylim=(0, None))


def _over_time(
    axes: "Axes", edges_s: Floats, values: Floats, label: str, looks: dict[str, Any]
) -> None:
    middles_s = (edges_s[1:] + edges_s[:-1]) / 2
    axes.plot(middles_s, values, label=label, linewidth=1.2, **looks)
    axes.set_xlabel("time (s)")
