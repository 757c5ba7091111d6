"""Snapshots of the etcd of a deployment on machines: `backup.yml`, `restore.yml`."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prfaas_cli.ansible_run import play
from prfaas_cli.deploy_inventory import deployed_inventory
from prfaas_cli.output import Output
from prfaas_cli.place import Place

_TIMEOUT_S = 1800.0


def save_from_inventory(place: Place, snapshot: Path, output: Output) -> dict[str, Any]:
    """Bring a checked snapshot here, and return its status. Raises: StateError: a host failed."""
    status = snapshot.with_name("status.json")
    _play(place, output, "backup.yml", {"backup_file": snapshot, "backup_status": status})
    return dict(json.loads(status.read_text()))


@dataclass(frozen=True, slots=True)
class InventoryEtcd:
    """The members of a deployment on machines."""

    place: Place
    output: Output

    def revision(self) -> int | None:
        """Return the revision of the first member that answers, None if none does."""
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder) / "status.json"
            _play(self.place, self.output, "backup.yml", {"backup_status": found}, look=True)
            try:
                answers = json.loads(found.read_text())
                return max(int(one["Status"]["header"]["revision"]) for one in answers)
            except (ValueError, KeyError, TypeError):
                return None

    def restore(self, snapshot: Path) -> None:
        """Have all members begin anew with a snapshot. Raises: StateError: a host failed."""
        _play(self.place, self.output, "restore.yml", {"restore_file": snapshot})


def _play(
    place: Place, output: Output, playbook: str, paths: dict[str, Path], *, look: bool = False
) -> None:
    deployment = place.require_deployment()
    place.logs.mkdir(exist_ok=True)
    variables = deployment["variables"] | {key: str(path) for key, path in paths.items()}
    variables["backup_look"] = look
    play(
        playbook,
        deployed_inventory(deployment),
        variables,
        log=place.log(playbook.removesuffix(".yml")),
        output=output,
        timeout_s=_TIMEOUT_S,
    )
