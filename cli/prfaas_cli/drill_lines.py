"""What `drill list` and `drill run` say: for people, and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prfaas_cli.output import table
from prfaas_loadtest.drills import Drill
from prfaas_loadtest.drills.figures import figures_of

if TYPE_CHECKING:
    from prfaas_cli.drill_series import Result


def library_document(drills: Sequence[Drill]) -> dict[str, Any]:
    """Return the library as JSON values."""
    rows = [
        {
            "name": drill.name,
            "about": drill.about,
            "kinds": list(drill.kinds),
            "faults": [fault.words for fault in drill.faults],
            "load_s": drill.load.seconds,
        }
        for drill in drills
    ]
    return {"drills": rows}


def library_lines(drills: Sequence[Drill]) -> Iterator[str]:
    """Yield one line for each drill."""
    rows = [["DRILL", "LOAD", "WHAT IT SHOWS"]]
    rows += [[drill.name, f"{drill.load.seconds:g} s", drill.about] for drill in drills]
    yield from table(rows)


def series_document(results: "Sequence[Result]") -> dict[str, Any]:
    """Return how all drills went as JSON values."""
    return {
        "passed": all(result.run is not None and result.run.passed for result in results),
        "drills": [_document(result) for result in results],
    }


def _document(result: "Result") -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": result.drill.name,
        "seed": result.seed,
        "seconds": round(result.took_s, 2),
        "passed": result.run is not None and result.run.passed,
        "error": result.error,
    }
    if result.run is None:
        return found
    run = result.run
    return found | {
        "digest": run.plan.digest,
        "findings": [asdict(finding) for finding in run.findings],
        "figures": figures_of(run),
        "timeline": [asdict(moment) for moment in run.moments],
    }


def series_lines(results: "Sequence[Result]") -> Iterator[str]:
    """Yield each drill's findings, then one line for all."""
    for result in results:
        yield from _lines(result)
        yield ""
    passed = sum(result.run is not None and result.run.passed for result in results)
    yield f"{passed} of {len(results)} drills passed"


def _lines(result: "Result") -> Iterator[str]:
    run = result.run
    head = f"{result.drill.name}, seed {result.seed}"
    if run is None:
        yield f"NOT RUN  {head}: {result.error}"
        return
    yield f"{'passed' if run.passed else 'FAILED'}  {head}, plan {run.plan.digest}"
    for finding in run.findings:
        yield f"  {'ok  ' if finding.holds else 'BAD '} {finding.name}: {finding.text}"


_RECORD = (
    *("drill", "seed", "held", "requests", "right", "fallback (s)", "recovery (s)"),
    *("P90 before (s)", "P90 broken (s)", "slowest (s)"),
)
_FIGURES = ("fallback_s", "recovery_s", "calm_p90_s", "broken_p90_s", "slowest_s")


def track_record(results: "Sequence[Result]") -> str:
    """Return a table of all runs in Markdown, as `docs/TESTING.md` has it."""
    rows = [_RECORD, tuple("---" for _ in _RECORD), *map(_record_row, results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _record_row(result: "Result") -> tuple[str, ...]:
    head = (f"`{result.drill.name}`", str(result.seed))
    if result.run is None:
        return (*head, "not run", *("" for _ in _RECORD[3:]))
    figures = figures_of(result.run)
    held = (
        "all"
        if result.run.passed
        else ", ".join(finding.name for finding in result.run.findings if not finding.holds)
    )
    shown = ("" if figures[key] is None else f"{figures[key]:.2f}" for key in _FIGURES)
    return (*head, held, str(figures["requests"]), str(figures["right"]), *shown)
