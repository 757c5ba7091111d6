"""Figures as SVG text that takes the colour and the width of the page around it."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (6.4, 3.6)
#: Stands for the colour of the page's text until the SVG is in the page.
_TEXT = "#0a0b0c"
#: Told apart by eye on white and on black, by those who see few colours too.
_COLOURS = (
    "#0088cc", "#e07b00", "#009e73", "#cc5599", "#8a8a00", "#7a6ff0", "#d0453a", "#888888",
)  # fmt: skip
_STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure: its heading, what it shows in words, and an `<svg>` element."""

    title: str
    words: str
    svg: str


def plot(title: str, words: str, draw: Callable[["Axes"], None]) -> Plot:
    """Return the figure that `draw` makes on empty axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    with mpl.rc_context(_style(title)):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor("none")
        axes.grid(visible=True, alpha=0.25)
        draw(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize="small", ncols=2)
        file = io.StringIO()
        none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=none)
    return Plot(title, words, _inline(file.getvalue(), title))


def looks(index: int) -> dict[str, Any]:
    """Return colour and line of the index-th thing of a figure."""
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "linestyle": _STYLES[index // 2 % len(_STYLES)],
    }


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
