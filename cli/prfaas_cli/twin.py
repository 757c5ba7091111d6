"""`prfaasctl twin`: many engine twins in one process, and faults for drills."""

from pathlib import Path
from typing import Annotated

import typer

from prfaas.names import check_name
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

app = typer.Typer(help="Engine twins: many in one process, faults.", no_args_is_help=True)


@app.command("run")
def run_twins(
    config: Annotated[
        list[Path], typer.Option("--config", help="A node's TOML file; repeat for more.")
    ],
    count: Annotated[
        int, typer.Option(help="Twins of each file: names and ports are counted up.")
    ] = 1,
    register: Annotated[
        bool, typer.Option("--register/--no-register", help="List them in etcd, as agents do.")
    ] = True,
) -> None:
    """Run twins in one process, without agents, until SIGTERM."""
    import asyncio

    from prfaas_cli.node import log_to_stderr, read_config
    from prfaas_cli.twin_fleet import numbered, serve_twins

    configs = [twin for file in config for twin in numbered(read_config(file), count)]
    log_to_stderr()
    asyncio.run(serve_twins(configs, register=register))


@app.command("fault")
def inject_fault(
    node: Annotated[str, typer.Argument(help="Name of a node whose engine is a twin.")],
    slowness: Annotated[
        float | None, typer.Option(help="Compute takes that many times longer; 1 ends it.")
    ] = None,
    stall: Annotated[
        float | None, typer.Option(help="Compute hangs for so many seconds; 0 ends it.")
    ] = None,
    crash: Annotated[bool, typer.Option("--crash", help="The engine ends as if killed.")] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Inject a fault into a twin of a deployment on this machine; without one, show what is."""
    from prfaas_cli.output import Output
    from prfaas_cli.twin_fleet import ask_twin

    check_name("NODE", node)
    faults = {"slowness": slowness, "stall_s": stall, "crash": crash or None}
    asked = {key: value for key, value in faults.items() if value is not None}
    place = Place.of(state_dir, name)
    document = ask_twin(place.directory / f"{node}.twin.sock", asked)
    Output(as_json=as_json).result(document, lambda: [_line(node, document)])


def _line(node: str, document: dict[str, object]) -> str:
    if document.get("crashed"):
        return f"{node}: crashed"
    state = "hangs" if document["stalled"] else "computes"
    return f"{node}: {state}, slowness {document['slowness']:g}"
