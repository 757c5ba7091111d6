"""Run `upgrade.yml` for a deployment on machines."""

from collections.abc import Mapping
from typing import Any

from prfaas.errors import StateError
from prfaas_cli.ansible_run import play, read_inventory
from prfaas_cli.deploy_inventory import deployed_inventory, is_of_inventory, release_of
from prfaas_cli.inventory import hosts_of, names_package
from prfaas_cli.output import Output
from prfaas_cli.place import Place


def upgrade_inventory(
    place: Place, output: Output, *, drain_s: float, force: bool, timeout_s: float
) -> None:
    """Upgrade host after host; the first that fails ends it, and run again it goes on there.

    Raises:
        StateError: not a deployment on machines, or a host failed.
    """
    deployment = place.require_deployment()
    if not is_of_inventory(place):
        raise StateError(
            f"{place.name} is emulated: its processes run the code of this machine, with nobody to"
            " stand in for them; to change over, run prfaasctl destroy and deploy"
        )
    inventory = deployed_inventory(deployment)
    with place.locked():
        document = read_inventory(inventory)
        variables = dict(deployment["variables"])
        if not names_package(document):
            variables |= release_of(place)
        played = play(
            "upgrade.yml",
            inventory,
            variables | {"upgrade_drain_s": drain_s, "upgrade_force": force},
            log=place.log("upgrade"),
            output=output,
            timeout_s=timeout_s,
        )
        place.write_deployment(deployment | {"variables": variables})
    _give_result(place, output, played.changed, of=[host.name for host in hosts_of(document)])


def _give_result(
    place: Place, output: Output, changed: Mapping[str, int], *, of: list[str]
) -> None:
    upgraded = [host for host in of if changed.get(host)]
    outcome = "upgraded" if upgraded else "nothing to do"
    document: dict[str, Any] = {
        "outcome": outcome,
        "name": place.name,
        "upgraded": upgraded,
        "changed": dict(changed),
        "seconds": round(output.elapsed_s, 2),
    }
    shown = f"{outcome}: {len(upgraded)} of {len(of)} hosts, {output.elapsed_s:.1f} s"
    output.result(document, lambda: [shown])
