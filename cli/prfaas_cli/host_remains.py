"""What full hosts leave when their processes have ended: mounts and control groups."""

from prfaas_cli.host_process import remove_cgroup
from prfaas_cli.mounts import unmount_below
from prfaas_cli.place import Place


def remove_hosts(place: Place) -> None:
    """Unmount the roots of a deployment's hosts and remove their control groups.

    Raises:
        StateError: a root does not come off.
    """
    folder = place.directory / "hosts"
    if not folder.exists():
        return
    unmount_below(folder)
    for host in folder.iterdir():
        remove_cgroup(f"prfaas-{place.name}-{host.name}")
