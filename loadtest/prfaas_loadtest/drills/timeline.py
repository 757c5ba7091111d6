"""The timeline of a drill as SVG: every request by when it was sent and how long it took."""

import io
import re
from typing import TYPE_CHECKING, Any

from prfaas_loadtest.drills.history import Outcome, Record
from prfaas_loadtest.drills.run import Run
from prfaas_loadtest.drills.verdict import is_right

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (9.6, 4.2)
#: Stands for the colour of the page's text until the SVG is in the page.
_TEXT = "#0a0b0c"
_FAULT = "#e07b00"
_LEAST_S = 1e-3
#: Colour and mark by how a request ended; told apart by those who see few colours too.
_LOOKS = {
    "right, local": ("#0088cc", "o"),
    "right, offload": ("#009e73", "^"),
    "right, fallback": ("#e07b00", "s"),
    "wrong": ("#d0453a", "X"),
    str(Outcome.FAILED): ("#d0453a", "x"),
    str(Outcome.CUT): ("#cc5599", "v"),
    str(Outcome.REFUSED): ("#cc5599", "1"),
    str(Outcome.SILENT): ("#d0453a", "*"),
    str(Outcome.ABANDONED): ("#888888", "+"),
}


def timeline_svg(run: Run) -> str:
    """Return an `<svg>` element that takes the page's colour and width; the same run, the same."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    with mpl.rc_context(_style()):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor("none")
        _draw_faults(axes, run)
        _draw_requests(axes, run)
        axes.set(yscale="log", xlabel="sent (s after the load's begin)", ylabel="took (s)")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
        file = io.StringIO()
        none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=none)
    return _inline(file.getvalue())


def _style() -> dict[Any, Any]:
    style = {"svg.hashsalt": "drill", "svg.fonttype": "none", "font.family": "sans-serif"}
    parts = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return style | dict.fromkeys(parts, _TEXT)


def _draw_faults(axes: "Axes", run: Run) -> None:
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "rotation": 90}
    place |= {"va": "top", "ha": "right", "fontsize": 7}
    for fault in run.plan.drill.faults:
        if fault.seconds:
            axes.axvspan(fault.at_s, fault.end_s, color=_FAULT, alpha=0.15, linewidth=0)
        axes.axvline(fault.at_s, color=_FAULT, linewidth=1)
        axes.annotate(fault.words, (fault.at_s, 1.0), **place)


def _draw_requests(axes: "Axes", run: Run) -> None:
    for label, (colour, mark) in _LOOKS.items():
        drawn = [record for record in run.records if _label(run, record) == label]
        if drawn:
            sent_s = [record.sent_s for record in drawn]
            took_s = [max(_LEAST_S, record.took_s) for record in drawn]
            words = f"{label} ({len(drawn)})"
            axes.scatter(sent_s, took_s, c=colour, marker=mark, s=18, label=words)


def _label(run: Run, record: Record) -> str:
    if is_right(record, run.evidence.right):
        return f"right, {record.route}"
    return "wrong" if record.outcome is Outcome.ANSWERED else str(record.outcome)


def _inline(svg: str) -> str:
    svg = svg[svg.index("<svg") :].replace(_TEXT, "currentColor")
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg", '<svg role="img" aria-label="timeline"', 1)
