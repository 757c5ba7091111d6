"""Figures of a campaign."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prfaas_cli.campaign_results import Results
from prfaas_cli.svg_plots import Plot, looks, plot
from prfaas_loadtest.campaigns.summary import Columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_BINS = 40
_SHARES = np.linspace(0.0, 1.0, 201)


def plots_of(runs: Sequence[tuple[str, Results]]) -> list[Plot]:
    """Return the figures of one run, or of several by their names."""
    columns = [(name, Columns.of(r.samples, r.facts.dilation), r) for name, r in runs]
    drawn = [
        plot(
            "TTFT",
            "share of requests whose first token came by then, counted from when they were due",
            lambda axes: _draw_ttft(axes, columns),
        ),
        plot(
            "TTFT over time",
            "each request at the time when it was due",
            lambda axes: _draw_points(axes, columns),
        ),
        plot(
            "Requests",
            "due, with a first token, and answered, by the time",
            lambda axes: _draw_counts(axes, columns),
        ),
        plot("TPOT", "share of answers", lambda axes: _draw_tpot(axes, columns)),
        plot(
            "Goodput over time",
            "requests that were due then and met the SLO, per second",
            lambda axes: _draw_goodput(axes, columns),
        ),
    ]
    if any(r.egress is not None for _, r in runs):
        drawn.append(
            plot("Link", "bytes into the decoding region", lambda axes: _draw_link(axes, columns))
        )
    return drawn


_Named = Sequence[tuple[str, Columns, Results]]


def _draw_ttft(axes: "Axes", columns: _Named) -> None:
    for index, (name, found, _) in enumerate(columns):
        known = found.ttft_s[~np.isnan(found.ttft_s)]
        if len(known):
            seconds = np.maximum(np.quantile(known, _SHARES), 1e-3)
            axes.plot(seconds, _SHARES, label=name, **looks(index))
    told = columns[0][2].prediction if len(columns) == 1 else None
    if told is not None:
        found_s = told.simulated.ttft
        at_s = [found_s.p50, found_s.p90, found_s.p99]
        axes.plot(at_s, [0.5, 0.9, 0.99], "o", label="simulated", color=looks(1)["color"])
    axes.set(xscale="log", xlabel="TTFT (s)", ylabel="share of requests", ylim=(0, 1))


def _draw_points(axes: "Axes", columns: _Named) -> None:
    for index, (name, found, _) in enumerate(columns):
        shown: dict[str, Any] = {"markersize": 2.5, "linestyle": "none", "marker": "."}
        colour = looks(2 * index)["color"]
        if len(columns) > 1:
            axes.plot(found.due_s, found.ttft_s, label=name, color=colour, **shown)
            continue
        far, near = found.offloaded, ~found.offloaded
        axes.plot(found.due_s[near], found.ttft_s[near], label="local", color=colour, **shown)
        axes.plot(
            found.due_s[far], found.ttft_s[far], label="offloaded", color=looks(1)["color"], **shown
        )
    axes.set(yscale="log", xlabel="time (s)", ylabel="TTFT (s)")


def _draw_counts(axes: "Axes", columns: _Named) -> None:
    lines = len(columns) > 1
    for index, (name, found, _) in enumerate(columns):
        rows = (
            ("due", found.due_s),
            ("first token", found.first_s),
            ("answered", found.last_s[found.answered]),
        )
        for place, (what, at_s) in enumerate(rows):
            known = np.sort(at_s[~np.isnan(at_s)])
            label = f"{name}: {what}" if lines else what
            count = np.arange(1, len(known) + 1)
            axes.plot(known, count, label=label, **looks(index * len(rows) + place))
    axes.set(xlabel="time (s)", ylabel="requests", ylim=(0, None))


def _draw_tpot(axes: "Axes", columns: _Named) -> None:
    for index, (name, found, _) in enumerate(columns):
        known = found.tpot_s[~np.isnan(found.tpot_s)]
        if len(known):
            axes.plot(np.quantile(known, _SHARES) * 1e3, _SHARES, label=name, **looks(index))
    axes.set(xlabel="TPOT (ms)", ylabel="share of answers", ylim=(0, 1))


def _draw_goodput(axes: "Axes", columns: _Named) -> None:
    for index, (name, found, results) in enumerate(columns):
        slo = results.campaign.slo
        steady = np.isnan(found.tpot_s) | (found.tpot_s <= slo.tpot_s * (1 + 1e-6))
        good = found.answered & (found.ttft_s <= slo.ttft_s) & steady
        end_s = max(float(found.due_s[-1]), 1e-9)
        counts, edges = np.histogram(found.due_s[good], bins=_BINS, range=(0.0, end_s))
        middles = (edges[1:] + edges[:-1]) / 2
        axes.plot(middles, counts / np.diff(edges), label=name, **looks(index))
    axes.set(xlabel="time (s)", ylabel="requests per second", ylim=(0, None))


def _draw_link(axes: "Axes", columns: _Named) -> None:
    for index, (name, _, results) in enumerate(columns):
        egress = results.egress
        if egress is not None:
            axes.plot(egress.at_s, egress.bits_per_s / 1e9, label=name, **looks(index))
    axes.set(xlabel="time (s)", ylabel="Gbps", ylim=(0, None))
