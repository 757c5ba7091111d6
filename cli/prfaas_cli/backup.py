"""`prfaasctl backup` and `prfaasctl restore`: what a deployment keeps in etcd."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from prfaas_cli.place import (
    DEFAULT_NAME,
    DEFAULT_STATE_DIR,
    JsonOption,
    NameOption,
    Place,
    StateDirOption,
)

if TYPE_CHECKING:
    from prfaas_cli.output import Output


def backup(
    target: Annotated[Path, typer.Argument(help="A new file, or a folder that gets one.")],
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Save what the deployment keeps in etcd: plan, policy, users."""
    from prfaas_cli.backup_file import backup_path, keep, manifest_of, manifest_path
    from prfaas_cli.deploy_inventory import is_of_inventory
    from prfaas_cli.etcd_tool import snapshot_status
    from prfaas_cli.output import Output

    output = Output(as_json=as_json)
    place = Place.of(state_dir, name)
    place.require_deployment()
    path = backup_path(target.absolute(), name, now_s=time.time())
    with place.locked(), _folder(path.parent) as folder:
        snapshot = folder / "snapshot.db"
        if is_of_inventory(place):
            from prfaas_cli.backup_inventory import save_from_inventory

            status = save_from_inventory(place, snapshot, output)
        else:
            from prfaas_cli.emulated_etcd import EmulatedEtcd
            from prfaas_cli.observation import Observed

            EmulatedEtcd.of(Observed.of(place)).save(snapshot)
            status = snapshot_status(snapshot)
        manifest = manifest_of(snapshot, status, deployment=name)
        keep(snapshot, path, manifest)
    document = {"outcome": "saved", "file": str(path), **asdict(manifest)}
    lines = [
        f"saved: {path}, revision {manifest.revision}, {manifest.keys} keys",
        f"{manifest_path(path)} says what it is; keep both, and let nobody read them",
    ]
    output.result(document, lambda: lines)


def restore(
    file: Annotated[Path, typer.Argument(help="What backup saved.")],
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Also over a newer state, or the backup of another deployment."),
    ] = False,
    name: NameOption = DEFAULT_NAME,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: JsonOption = False,
) -> None:
    """Put a backup in the place of what the deployment keeps in etcd."""
    from prfaas.errors import StateError
    from prfaas_cli.backup_file import read_manifest, restore_problem
    from prfaas_cli.output import Output

    output = Output(as_json=as_json)
    place = Place.of(state_dir, name)
    place.require_deployment()
    manifest = read_manifest(file.absolute())
    with place.locked():
        etcd = _etcd_of(place, output)
        problem = None if yes else restore_problem(manifest, name, etcd.revision())
        if problem:
            raise StateError(f"{problem}; give --yes to go on")
        etcd.restore(file.absolute())
    document = {
        "outcome": "restored",
        "name": name,
        "revision": manifest.revision if manifest else None,
        "seconds": round(output.elapsed_s, 2),
    }
    output.result(document, lambda: [f"restored: {file}, {output.elapsed_s:.1f} s"])


class _Etcd(Protocol):
    """What a deployment keeps its state in."""

    def revision(self) -> int | None:
        """Return how far it is, None where it does not answer."""

    def restore(self, snapshot: Path) -> None:
        """Put a snapshot's state in the place of what it has."""


def _etcd_of(place: Place, output: "Output") -> _Etcd:
    from prfaas_cli.deploy_inventory import is_of_inventory

    if is_of_inventory(place):
        from prfaas_cli.backup_inventory import InventoryEtcd

        return InventoryEtcd(place, output)
    from prfaas_cli.emulated_etcd import EmulatedEtcd
    from prfaas_cli.observation import Observed

    return EmulatedEtcd.of(Observed.of(place))


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    """Make a folder that only its owner may enter, beside what is to be made; remove it at last."""
    folder = Path(tempfile.mkdtemp(prefix=".prfaas-backup-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
