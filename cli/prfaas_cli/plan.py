"""`prfaasctl plan`: the threshold and roles that let the most requests through, and why."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas.planning import Case

_OPTIONS = {"threshold_tokens": "--threshold", "n_p": "--n-p", "n_d": "--n-d"}
_PLOT_TYPES = (".svg", ".png", ".pdf")


class Mean(StrEnum):
    """What a stage's mean time is taken to be."""

    MEAN = "mean"
    EXACT = "exact"


def plan(
    case: Annotated[
        str, typer.Option(help="A case: paper, or a TOML file of your site.", metavar="CASE")
    ] = "paper",
    threshold: Annotated[
        int | None, typer.Option(min=0, max=1 << 30, help="Take this threshold, search the rest.")
    ] = None,
    n_p: Annotated[
        int | None, typer.Option("--n-p", min=0, help="Take this many local prefill instances.")
    ] = None,
    n_d: Annotated[
        int | None, typer.Option("--n-d", min=0, help="Take this many decode instances.")
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="Give every link this rate, as in 10gbit.", metavar="RATE")
    ] = None,
    expectation: Annotated[
        Mean,
        typer.Option(help="Time of the mean length, as in the paper, or the exact mean of times."),
    ] = Mean.MEAN,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves into this .svg, .png or .pdf.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a site: threshold, roles, what limits, and what one more of anything would bring."""
    from prfaas.throughput import Expectation
    from prfaas_cli.cases import load_case
    from prfaas_cli.output import Output
    from prfaas_cli.plan_lines import lines_of
    from prfaas_cli.plan_study import document_of, study, with_fixed

    if plot is not None and plot.suffix.lower() not in _PLOT_TYPES:
        raise ConfigError(f"--plot {plot}: allowed: a file ending in {', '.join(_PLOT_TYPES)}")
    wanted = with_fixed(load_case(case), threshold_tokens=threshold, n_p=n_p, n_d=n_d)
    with _as_options({"threshold_tokens": threshold, "n_p": n_p, "n_d": n_d}):
        found = study(_with_link(wanted, link), Expectation(expectation.value))
    output = Output(as_json=as_json)
    if plot is not None:
        from prfaas_cli.plan_plot import draw

        draw(found, plot)
        output.note(f"drew {plot}")
    output.note(
        f"searched {found.plan.evaluated} combinations of threshold and roles"
        f" in {found.search_s * 1e3:.1f} ms"
    )
    output.result(document_of(found), lambda: lines_of(found))


@contextmanager
def _as_options(fixed: Mapping[str, int | None]) -> Iterator[None]:
    """Name in errors the option that fixed a value, where the search knows only its field."""
    try:
        yield
    except ConfigError as error:
        text = str(error)
        for field, value in fixed.items():
            if value is not None:
                text = text.replace(f"{field} = ", f"{_OPTIONS[field]} ")
        raise ConfigError(text) from None


def _with_link(case: "Case", rate: str | None) -> "Case":
    if rate is None:
        return case
    from prfaas.units import parse_rate
    from prfaas_cli.plan_study import with_links

    return with_links(case, parse_rate(rate, option="--link") / 8)
