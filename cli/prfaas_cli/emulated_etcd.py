"""The one etcd of an emulated deployment: its snapshot, and another state in its place."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prfaas.errors import StateError
from prfaas_agent.process import identify
from prfaas_cli.credentials import OPERATOR
from prfaas_cli.etcd_tool import etcd_tool
from prfaas_cli.observation import Observed
from prfaas_cli.process_plan import ProcessSpec
from prfaas_cli.processes import process_of

_UP_TIMEOUT_S = 60.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class EmulatedEtcd:
    """One etcd: its process as planned, and the deployment that it is of."""

    observed: Observed
    spec: ProcessSpec

    @classmethod
    def of(cls, observed: Observed) -> "EmulatedEtcd":
        """Return the deployment's etcd. Raises: StateError: it has none."""
        for spec in observed.specs:
            if "--initial-cluster" in spec.argv:
                return cls(observed, spec)
        raise StateError(f"{observed.place.deployment_file} names no etcd; deploy again")

    def save(self, path: Path) -> None:
        """Save a snapshot. Raises: StateError: etcd does not answer."""
        self._ask("snapshot", "save", str(path))

    def revision(self) -> int | None:
        """Return the revision of etcd; None where it does not answer."""
        try:
            found = json.loads(self._ask("endpoint", "status", "-w", "json"))
            return int(found[0]["Status"]["header"]["revision"])
        except (StateError, ValueError, KeyError, IndexError):
            return None

    def restore(self, snapshot: Path) -> None:
        """Put a snapshot's state in the place of etcd's, and have it started on that.

        Raises:
            StateError: it is not a snapshot, or etcd does not come up on it.
        """
        data = Path(self._option("--data-dir"))
        made, before = (data.with_name(f"{data.name}.{end}") for end in ("restored", "before"))
        shutil.rmtree(made, ignore_errors=True)
        words = ["snapshot", "restore", str(snapshot), "--data-dir", str(made)]
        for option in ("--name", "--initial-cluster"):
            words += [option, self._option(option)]
        words += ["--initial-advertise-peer-urls", self._option("--initial-advertise-peer-urls")]
        etcd_tool(words, {})
        shutil.rmtree(before, ignore_errors=True)
        with suppress(FileNotFoundError):
            data.rename(before)
        made.rename(data)
        self._start_anew()
        shutil.rmtree(before, ignore_errors=True)

    def _start_anew(self) -> None:
        """End etcd at once, so that it writes nothing more; its supervisor starts it again."""
        process = process_of(self.observed.supervisor()["processes"].get(self.spec.name))
        if process is not None and identify(process.pid) == process:
            os.kill(process.pid, signal.SIGKILL)
            self._wait(lambda: identify(process.pid) != process, "does not end")
        self._wait(lambda: self.revision() is not None, "does not answer")

    def _wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline_s = time.monotonic() + _UP_TIMEOUT_S
        while not is_so():
            if time.monotonic() >= deadline_s:
                log = self.observed.place.log(self.spec.name)
                raise StateError(f"etcd {otherwise}; see {log}; run prfaasctl deploy again")
            time.sleep(_LOOK_S)

    def _ask(self, *words: str) -> str:
        from prfaas_netem import inside

        certificates = self.observed.place.certificates
        environment = {"ETCDCTL_ENDPOINTS": self._option("--advertise-client-urls")}
        if "--cert-file" in self.spec.argv:
            environment |= {
                "ETCDCTL_CACERT": str(certificates / "ca.crt"),
                "ETCDCTL_CERT": str(certificates / f"{OPERATOR}.crt"),
                "ETCDCTL_KEY": str(certificates / f"{OPERATOR}.key"),
            }
        with inside(self.spec.namespace):
            return etcd_tool(words, environment)

    def _option(self, name: str) -> str:
        return self.spec.argv[self.spec.argv.index(name) + 1]
