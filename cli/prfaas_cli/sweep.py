"""End and remove everything of a deployment, in whatever state it is."""

import contextlib
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from prfaas.errors import StateError
from prfaas_agent.process import ProcessId, end_processes, identify, send_signal
from prfaas_agent.shared_memory import remove_shared_files, shared_files
from prfaas_agent.state_file import read_json
from prfaas_cli.host_remains import remove_hosts
from prfaas_cli.place import Place
from prfaas_cli.processes import (
    deployment_processes,
    foreign_directory,
    process_of,
    recorded_shared_files,
)

GRACE_S = 4.0
_ROUNDS = 5

Say = Callable[[str], None]


@dataclass(slots=True)
class Swept:
    """What a sweep found and removed."""

    processes: int = 0
    namespaces: list[str] = field(default_factory=list)
    directory: bool = False

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to remove."""
        return not (self.processes or self.namespaces or self.directory)


def sweep(place: Place, *, keep_logs: bool, say: Say) -> Swept:
    """Remove a deployment: processes, namespaces, files. Call with the place locked.

    Raises:
        StateError: a process does not end, or the namespaces are another deployment's.
    """
    swept = end_everything(place, say=say)
    swept.directory = _remove_files(place, keep_logs=keep_logs)
    return swept


def end_everything(place: Place, *, say: Say) -> Swept:
    """End the processes of a deployment and remove its namespaces; its files stay.

    Raises:
        StateError: as `sweep`.
    """
    from prfaas_netem import remove
    from prfaas_netem.owner import namespaces_of

    swept = Swept()
    names = namespaces_of(place.name)
    require_ours(place, names)
    _end_supervisor(place)
    swept.processes = _end_all(place, names, say)
    if names:
        say(f"removing {len(names)} network namespaces")
        swept.namespaces = list(remove(place.name))
    return swept


def require_ours(place: Place, namespaces: tuple[str, ...]) -> None:
    """Refuse namespaces in which processes of another directory's deployment live.

    Raises:
        StateError: naming the other directory.
    """
    other = foreign_directory(place, namespaces)
    if other is not None:
        raise StateError(
            f"the namespaces of deployment {place.name} are used by {other};"
            " choose another --name, or give --state-dir of that one"
        )


def _end_supervisor(place: Place) -> None:
    """End the supervisor first and hard, or it would start again what we end."""
    supervisor = process_of(read_json(place.supervisor_file) or {})
    if supervisor is not None and identify(supervisor.pid) == supervisor:
        send_signal(supervisor, signal.SIGKILL)


def _end_all(place: Place, namespaces: tuple[str, ...], say: Say) -> int:
    """End all processes; again, as one may have been starting another while we looked."""
    ended: set[ProcessId] = set()
    shared = recorded_shared_files(place)
    for attempt in range(_ROUNDS):
        found = deployment_processes(place, namespaces)
        if not found:
            remove_shared_files(shared)
            return len(ended)
        say(f"ending {len(found)} processes")
        shared |= shared_files(found)
        end_processes(found, grace_s=GRACE_S if attempt == 0 else 0.0)
        ended |= found
    left = deployment_processes(place, namespaces)
    if left:
        pids = ", ".join(str(process.pid) for process in sorted(left))
        raise StateError(f"processes {pids} do not end, not even by SIGKILL; run destroy again")
    return len(ended)


def _remove_files(place: Place, *, keep_logs: bool) -> bool:
    if not place.directory.exists():
        return False
    remove_hosts(place)
    entries = list(place.directory.iterdir())
    for entry in entries:
        if keep_logs and entry == place.logs:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    if not (keep_logs and place.logs.exists()):
        place.directory.rmdir()
    with contextlib.suppress(OSError):
        # Only when it is empty: other deployments may be there.
        place.root.rmdir()
    return bool(entries)
