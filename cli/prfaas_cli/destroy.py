"""`prfaasctl destroy`: remove a deployment, whatever state it is in."""

from typing import Annotated

import typer

from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)


def destroy(
    keep_logs: Annotated[bool, typer.Option("--keep-logs", help="Keep the logs.")] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Remove a deployment, whatever state it is in."""
    from contextlib import nullcontext
    from dataclasses import asdict

    from prfaas_cli.deploy_inventory import destroy_inventory, is_of_inventory
    from prfaas_cli.output import Output
    from prfaas_cli.sweep import sweep

    output = Output(as_json=as_json)
    place = Place.of(state_dir, name)
    with place.locked() if place.directory.exists() else nullcontext():
        if is_of_inventory(place):
            destroy_inventory(place, output)
        swept = sweep(place, keep_logs=keep_logs, say=output.step)
    outcome = "nothing deployed" if swept.nothing else "destroyed"
    document = {"outcome": outcome, "seconds": round(output.elapsed_s, 2), **asdict(swept)}
    ending = f"{swept.processes} processes, {len(swept.namespaces)} namespaces"
    lines = [outcome if swept.nothing else f"destroyed {name}: {ending}, {output.elapsed_s:.1f} s"]
    output.result(document, lambda: lines)
