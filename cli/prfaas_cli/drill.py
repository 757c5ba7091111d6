"""`prfaasctl drill`: break a deployment of twins as planned, and see what its clients see."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import JsonOption

if TYPE_CHECKING:
    from prfaas_cli.drill_series import Result

app = typer.Typer(
    help="Chaos drills: timed faults under load, and what held.", no_args_is_help=True
)

_FAILED = 1


@app.command("list")
def list_drills(as_json: JsonOption = False) -> None:
    """List the drills of the library."""
    from prfaas_cli.drill_lines import library_document, library_lines
    from prfaas_cli.output import Output
    from prfaas_loadtest.drills import library_names, read_drill

    drills = [read_drill(name) for name in library_names()]
    Output(as_json=as_json).result(library_document(drills), lambda: library_lines(drills))


@app.command("run")
def run_drills(
    drill: Annotated[
        list[str] | None, typer.Argument(help="TOML files, or names that drill list shows.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All drills of the library.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="Makes the same plan again; else the drill's own.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--for", help="Go on with ever new seeds for so many seconds.")
    ] = 0.0,
    report: Annotated[
        Path | None, typer.Option(help="HTML file; with several drills a directory for them.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="File for what became of every request, JSON lines.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Use this deployment, and leave it; else make one.")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(envvar="PRFAAS_STATE_DIR", help="Where deployments keep state."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run drills; exit 0 only if all that must hold did, 3 if one cannot be done here."""
    from prfaas_cli.drill_lines import series_document, series_lines
    from prfaas_cli.drill_series import Asked, run_series
    from prfaas_cli.output import Output

    drills = _drills(drill or [], every=every)
    if seed is not None and seed < 0:
        raise ConfigError(f"--seed {seed}: allowed: 0 or more")
    if not 0 <= seconds <= 86400 * 7:
        raise ConfigError(f"--for {seconds:g}: allowed: 0 to {86400 * 7} seconds")
    output = Output(as_json=as_json)
    asked = Asked(drills, seed, seconds, report, history, name, state_dir)
    results = run_series(asked, output)
    output.result(series_document(results), lambda: series_lines(results))
    raise typer.Exit(_exit_code(results))


def _drills(names: list[str], *, every: bool) -> list[Any]:
    """Return what to run.

    Raises:
        ConfigError: nothing, or both all and some.
    """
    from prfaas_loadtest.drills import library_names, read_drill

    if every == bool(names):
        raise ConfigError("drill run: give drills, or --all; drill list shows those there are")
    return [read_drill(each) for each in (library_names() if every else names)]


def _exit_code(results: "list[Result]") -> int:
    if any(result.run is not None and not result.run.passed for result in results):
        return _FAILED
    if any(result.error for result in results):
        return max(result.exit_code for result in results)
    return 0
