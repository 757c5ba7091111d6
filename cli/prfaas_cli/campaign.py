"""`prfaasctl campaign`: measured load on a deployment, or on any API that streams tokens."""

from pathlib import Path
from typing import Annotated

import typer

from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    StateDirOption,
)

app = typer.Typer(help="Measure under load: run, compare, worker.", no_args_is_help=True)

_DEFAULT_PORT = 5557


@app.command("run")
def run(
    file: Annotated[Path, typer.Argument(help="The campaign, a TOML file.", metavar="FILE")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; it must be new or empty.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Bring the same requests at this mean rate, per second.", min=1e-6),
    ] = None,
    requests: Annotated[int | None, typer.Option(help="So many requests.", min=1)] = None,
    workers: Annotated[
        int, typer.Option(help="Processes that send; 0: one that also leads.", min=0, max=64)
    ] = 0,
    remote_workers: Annotated[
        int, typer.Option(help="Workers that come from elsewhere (campaign worker).", min=0)
    ] = 0,
    bind: Annotated[str, typer.Option(help="Where remote workers come to.")] = "127.0.0.1",
    master_port: Annotated[
        int, typer.Option(help="Port for workers.", min=1, max=65534)
    ] = _DEFAULT_PORT,
    web: Annotated[
        int, typer.Option(help="Port of Locust's web page; 0: none.", min=0, max=65535)
    ] = 0,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Send a campaign's load and measure it; Ctrl-C ends it and keeps what was measured."""
    from prfaas_cli.campaign_run import Asked, run_campaign
    from prfaas_cli.output import Output
    from prfaas_cli.place import Place
    from prfaas_loadtest.campaigns.run import Spread

    spread = Spread(workers, remote_workers, bind, master_port, web)
    asked = Asked(file, out, rate, requests, spread)
    status = run_campaign(asked, Place.of(state_dir, name), Output(as_json=as_json))
    if status:
        # Not typer's way: the results are given already, and must stay the only document.
        raise SystemExit(status)


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="A")],
    second: Annotated[Path, typer.Argument(help="That of another.", metavar="B")],
    as_json: JsonOption = False,
) -> None:
    """Lay two runs side by side: what changed, and whether by more than chance."""
    from prfaas_cli.campaign_compare import compare_runs
    from prfaas_cli.output import Output

    compare_runs(first, second, Output(as_json=as_json))


@app.command("worker")
def worker(
    master: Annotated[str, typer.Option(help="HOST:PORT of `campaign run --remote-workers`.")],
) -> None:
    """Send a share of another machine's campaign; its clock must agree with this one's."""
    from prfaas_cli.campaign_run import run_worker

    run_worker(master)
