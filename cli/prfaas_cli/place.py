"""Where a deployment keeps everything: one visible directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from prfaas.errors import StateError
from prfaas_agent.state_file import read_json, write_json

MARKER = "PRFAAS_DEPLOYMENT"
"""Environment variable of every process of a deployment; its value is the directory."""

NameOption = Annotated[str, typer.Option("--name", help="Name of the deployment.")]
StateDirOption = Annotated[
    Path,
    typer.Option("--state-dir", envvar="PRFAAS_STATE_DIR", help="Where deployments keep state."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
DEFAULT_NAME = "default"
DEFAULT_STATE_DIR = Path("/var/lib/prfaas")


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one deployment. Only `write` and `locked` touch the disk."""

    root: Path
    name: str

    @classmethod
    def of(cls, state_dir: Path, name: str) -> "Place":
        """Return the place of a deployment.

        Raises:
            ConfigError: the name is not allowed.
        """
        from prfaas_netem.topology import check_deployment

        check_deployment(name)
        return cls(state_dir.resolve(), name)

    @property
    def directory(self) -> Path:
        """The deployment's own directory."""
        return self.root / self.name

    @property
    def deployment_file(self) -> Path:
        """What was asked for, and the processes that follow from it."""
        return self.directory / "deployment.json"

    @property
    def supervisor_file(self) -> Path:
        """What the supervisor runs; written by the supervisor only."""
        return self.directory / "supervisor.json"

    @property
    def topology_file(self) -> Path:
        """The regions and the link, for the link emulator."""
        return self.directory / "topology.json"

    @property
    def link_socket(self) -> Path:
        """Control socket of the link emulator."""
        return self.directory / "link.sock"

    @property
    def fork_socket(self) -> Path:
        """Socket of the fork server."""
        return self.directory / "fork.sock"

    @property
    def certificates(self) -> Path:
        """The CA and the certificates of all nodes, where TLS is on."""
        return self.directory / "certs"

    @property
    def secret_file(self) -> Path:
        """The secret that all nodes share, where there is one."""
        return self.directory / "secret"

    @property
    def logs(self) -> Path:
        """Output of every process, `<name>.log`."""
        return self.directory / "logs"

    @property
    def temporary(self) -> Path:
        """Temporary files of all processes."""
        return self.directory / "tmp"

    def config_file(self, node: str) -> Path:
        """Return a node's configuration file."""
        return self.directory / f"{node}.toml"

    def log(self, process: str) -> Path:
        """Return a process's log file."""
        return self.logs / f"{process}.log"

    def stats_socket(self, node: str) -> Path:
        """Return the socket on which a node's engine serves its transfer counters."""
        return self.directory / f"{node}.stats.sock"

    def agent_state(self, node: str) -> dict[str, Any]:
        """Return what a node agent says of itself, empty if nothing."""
        return read_json(self.directory / f"{node}.agent.json") or {}

    def read_deployment(self) -> dict[str, Any] | None:
        """Return the deployment's file, None when nothing is deployed."""
        return read_json(self.deployment_file)

    def require_deployment(self) -> dict[str, Any]:
        """Return the deployment's file.

        Raises:
            StateError: nothing is deployed here.
        """
        found = self.read_deployment()
        if found is None:
            raise StateError(
                f"nothing is deployed as {self.name} in {self.root};"
                " run prfaasctl deploy, or give --name and --state-dir"
            )
        return found

    def require_emulated(self) -> dict[str, Any]:
        """Return the deployment's file, of emulated regions on this machine.

        Raises:
            StateError: nothing is deployed here, or it is on machines.
        """
        found = self.require_deployment()
        if "inventory" in found:
            raise StateError(
                f"{self.name} is deployed onto machines, and this command looks at emulated"
                " regions; ask the gateway's API, at the address that deploy printed"
            )
        return found

    def write_deployment(self, value: dict[str, Any]) -> None:
        """Replace the deployment's file."""
        write_json(self.deployment_file, value)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing this deployment meanwhile; makes its directory.

        Raises:
            StateError: another command is at it, or the directory cannot be made.
        """
        descriptor = self._lock()
        try:
            yield
        finally:
            with suppress(OSError):
                # Only when it is empty: nothing was made in it.
                self.directory.rmdir()
                self.root.rmdir()
            os.close(descriptor)

    def _lock(self) -> int:
        """Lock the directory itself, so that no lock file stays behind."""
        while True:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise StateError(f"directory {self.directory}: {error.strerror}") from None
            if not _try_lock(descriptor):
                os.close(descriptor)
                raise StateError(
                    f"another prfaasctl is changing deployment {self.name}; wait until it ends"
                )
            if _is_same(descriptor, self.directory):
                return descriptor
            # The other command removed the directory between our open and our lock.
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)
