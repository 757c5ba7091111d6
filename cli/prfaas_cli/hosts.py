"""`prfaasctl hosts`: emulated machines with systemd and sshd, from a topology file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from prfaas_cli.place import DEFAULT_STATE_DIR, JsonOption, Place, StateDirOption

app = typer.Typer(
    help="Emulated machines with systemd and sshd, for ansible.", no_args_is_help=True
)

DEFAULT_HOSTS = "hosts"
_MAX_TIMEOUT_S = 3600.0

HostsNameOption = Annotated[str, typer.Option("--name", help="Name of this set of hosts.")]


@app.command("up")
def up(
    topology: Annotated[
        Path, typer.Option(help="A file with regions, hosts and links (see docs/topology.md).")
    ],
    timeout: Annotated[float, typer.Option(help="Seconds until every host greets.")] = 60.0,
    name: HostsNameOption = DEFAULT_HOSTS,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Make what is missing of the hosts, and boot them."""
    from dataclasses import replace

    from prfaas.errors import ConfigError
    from prfaas_cli.deploy_topology import read_topology
    from prfaas_cli.host_bring_up import bring_up, check_machine
    from prfaas_cli.output import Output
    from prfaas_netem import parse_topology

    if not 0 < timeout <= _MAX_TIMEOUT_S:
        raise ConfigError(f"--timeout {timeout:g}: allowed is up to {_MAX_TIMEOUT_S:g} seconds")
    place = Place.of(state_dir, name)
    text = read_topology(topology)
    check_machine()
    output = Output(as_json=as_json)
    with place.locked():
        planned = replace(parse_topology(text), deployment=name)
        outcome, hosts = bring_up(place, planned, text, output, timeout_s=timeout)
    document = {
        "outcome": outcome,
        "name": name,
        "hosts": {host.name: host.address for host in hosts},
        "seconds": round(output.elapsed_s, 2),
    }
    flags = "" if name == DEFAULT_HOSTS else f" --name {name}"
    if state_dir != DEFAULT_STATE_DIR:
        flags += f" --state-dir {state_dir}"
    lines = [
        f"{outcome}: {len(hosts)} hosts, {output.elapsed_s:.1f} s",
        f"inventory: prfaasctl hosts inventory{flags}; remove: prfaasctl hosts down{flags}",
    ]
    output.result(document, lambda: lines)


@app.command("down")
def down(
    name: HostsNameOption = DEFAULT_HOSTS,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Switch the hosts off and remove all that they wrote."""
    from contextlib import nullcontext
    from dataclasses import asdict

    from prfaas_cli.output import Output
    from prfaas_cli.sweep import sweep

    output = Output(as_json=as_json)
    place = Place.of(state_dir, name)
    with place.locked() if place.directory.exists() else nullcontext():
        swept = sweep(place, keep_logs=False, say=output.step)
    outcome = "no hosts" if swept.nothing else "removed"
    document = {"outcome": outcome, "seconds": round(output.elapsed_s, 2), **asdict(swept)}
    output.result(document, lambda: [f"{outcome}: {output.elapsed_s:.1f} s"])


@app.command("list")
def list_hosts(
    name: HostsNameOption = DEFAULT_HOSTS,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Show the hosts and whether their sshd greets; exit 1 if one does not."""
    from prfaas_cli.host_bring_up import answers
    from prfaas_cli.output import Output, table

    states = {host: answers(host) for host in _hosts(Place.of(state_dir, name))}
    rows = [["host", "region", "address", "namespace", "state"]]
    rows += [
        [host.name, host.region, host.address, host.namespace, "up" if up else "no answer"]
        for host, up in states.items()
    ]
    keys = rows[0]
    document = {"hosts": [dict(zip(keys, row, strict=True)) for row in rows[1:]]}
    Output(as_json=as_json).result(document, lambda: table(rows))
    if not all(states.values()):
        raise typer.Exit(1)


@app.command("inventory")
def show_inventory(
    output: Annotated[
        Path | None, typer.Option("--output", help="A file to write instead of stdout.")
    ] = None,
    name: HostsNameOption = DEFAULT_HOSTS,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
) -> None:
    """Write the inventory of the hosts for ansible, as JSON."""
    from prfaas.errors import StateError
    from prfaas_cli.host_plan import inventory

    place = Place.of(state_dir, name)
    text = json.dumps(inventory(place, _hosts(place)), indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
    except OSError as error:
        raise StateError(f"cannot write {output}: {error.strerror}") from None


def _hosts(place: Place) -> Any:
    from prfaas_cli.host_bring_up import read_hosts
    from prfaas_cli.host_plan import plan_hosts

    return plan_hosts(place, *read_hosts(place))
