"""`prfaasctl upgrade`: bring machines to another release one after the other, without loss."""

from typing import Annotated

import typer

from prfaas.errors import ConfigError
from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

_MAX_DRAIN_S = 3600.0
_MAX_TIMEOUT_S = 86400.0


def upgrade(
    drain: Annotated[
        float, typer.Option(help="Seconds in which a node must finish the requests it has.")
    ] = 600.0,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also nodes that no other can stand in for: requests fail."),
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds for all hosts together.")] = 14400.0,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Bring the release of this package to the machines, one at a time, drained first."""
    from prfaas_cli.output import Output
    from prfaas_cli.upgrade_inventory import upgrade_inventory

    if not 0 <= drain <= _MAX_DRAIN_S:
        raise ConfigError(f"--drain {drain:g}: allowed is 0 to {_MAX_DRAIN_S:g} seconds")
    if not 0 < timeout <= _MAX_TIMEOUT_S:
        raise ConfigError(f"--timeout {timeout:g}: allowed is up to {_MAX_TIMEOUT_S:g} seconds")
    place = Place.of(state_dir, name)
    upgrade_inventory(place, Output(as_json=as_json), drain_s=drain, force=force, timeout_s=timeout)
