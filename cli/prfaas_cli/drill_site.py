"""A deployment on this machine as drills reach it: processes, link, twins, disk, what it tells."""

import os
import re
import signal
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prfaas.errors import StateError
from prfaas.records import Role
from prfaas_agent.process import ProcessId, is_alive, send_signal, session_members
from prfaas_agent.state_file import read_json
from prfaas_cli.agent_control import ask_agent
from prfaas_cli.api_key import key_headers
from prfaas_cli.deploy_gateway import client_context
from prfaas_cli.drill_snapshot import take_snapshot
from prfaas_cli.drill_strangers import pester
from prfaas_cli.observation import Observed
from prfaas_cli.process_plan import api_url
from prfaas_cli.processes import process_of, read_supervisor
from prfaas_cli.status import problems_of
from prfaas_cli.twin_fleet import ask_twin
from prfaas_loadtest.drills import Snapshot

_AGENT = ".agent"
_ROLE_TIMEOUT_S = 50.0
_FILLER = "drill.filler"
#: A larger file system is none that a drill made: filling it would harm others.
_MOST_DISK_BYTES = 1 << 30
_COUNTED = re.compile(r"^prfaas_requests_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(slots=True)
class DeploymentSite:
    """What `prfaas_loadtest.drills.Site` asks for, of a deployment of this machine."""

    observed: Observed

    @property
    def url(self) -> str:
        """Where its API is."""
        return api_url(self.observed.options)

    @property
    def headers(self) -> Mapping[str, str]:
        """The key that prfaasctl was given."""
        return key_headers()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The certificate that the gateway was deployed with."""
        return client_context(self.observed.place, self.observed.options)

    @property
    def processes(self) -> Sequence[str]:
        """A node's name is its engine, `<node>.agent` its agent."""
        engines = self.observed.engine_nodes
        others = [spec.name for spec in self.observed.specs if spec.name not in engines]
        return [*engines, *(node + _AGENT for node in engines), *others]

    @property
    def twins(self) -> Sequence[str]:
        """All engines: drills run on twins only."""
        return self.observed.engine_nodes

    def process(self, name: str) -> ProcessId | None:
        """Return the identity of a process as it runs now."""
        place = self.observed.place
        if name in self.observed.engine_nodes:
            found = read_json(place.directory / f"{name}.engine.json") or {}
            process = process_of(found.get("process"))
        else:
            known = read_supervisor(place)["processes"]
            process = process_of(known.get(name.removesuffix(_AGENT)))
        return process if process is not None and is_alive(process) else None

    def signal(self, name: str, number: int) -> bool:
        """Signal a process and what runs in its session."""
        process = self.process(name)
        if process is None:
            return False
        members = session_members(process)
        if number == signal.SIGTERM:
            members = [process]
        reached = [send_signal(member, number) for member in members]
        return any(reached)

    def pause(self, process: Any) -> None:
        """Stop a process and what runs in its session."""
        _signal_session(process, signal.SIGSTOP)

    def resume(self, process: Any) -> None:
        """Let a stopped process and what runs in its session go on."""
        _signal_session(process, signal.SIGCONT)

    def link(self) -> dict[str, Any]:
        """Return each way's spec by its name."""
        from prfaas_netem import show

        ways = show(self.observed.place.link_socket)["directions"]
        return {f"{way['from']}-{way['to']}": way["spec"] for way in ways}

    def set_link(self, wanted: dict[str, Any]) -> None:
        """Set each way."""
        from prfaas_netem import LinkSpec, set_link

        for way, spec in wanted.items():
            source, target = way.split("-")
            control = self.observed.place.link_socket
            set_link(control, LinkSpec.from_json(spec), source=source, target=target)

    def inject(self, node: str, faults: dict[str, Any]) -> None:
        """Have a twin be slow or hang."""
        ask_twin(self.observed.place.directory / f"{node}.twin.sock", faults)

    def fill_disk(self) -> None:
        """Take what room there is, then write until not a byte more goes in."""
        directory = self.observed.place.directory
        room = os.statvfs(directory)
        total = room.f_blocks * room.f_frsize
        if total > _MOST_DISK_BYTES:
            raise StateError(
                f"{directory} lies on a file system of {total >> 20} MiB: only a small one of its"
                " own is filled; give the drill's site disk_bytes"
            )
        block = bytes(1 << 20)
        descriptor = os.open(directory / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with suppress(OSError):
                os.posix_fallocate(descriptor, 0, room.f_bavail * room.f_frsize)
            while block:
                try:
                    os.write(descriptor, block)
                except OSError:
                    # Less than a whole block is left: fill that, too.
                    block = block[: len(block) // 2]
        finally:
            os.close(descriptor)

    def free_disk(self) -> None:
        """Remove what `fill_disk` wrote."""
        (self.observed.place.directory / _FILLER).unlink(missing_ok=True)

    def pester(self, node: str, seed: int, count: int) -> int:
        """Strangers of the other region connect to all ports of a node."""
        return pester(self.observed, node, seed=seed, count=count)

    def change_role(self, node: str) -> None:
        """Have a node take the other role."""
        nodes = self.observed.nodes() or {}
        if node not in nodes:
            raise StateError(f"{node} is not registered: its role cannot be changed")
        other = Role.DECODE if nodes[node].role is Role.PREFILL else Role.PREFILL
        ask_agent(
            self.observed.place.directory / f"{node}.agent.sock",
            "/role",
            {"role": str(other), "force": True, "timeout_s": _ROLE_TIMEOUT_S / 2},
            timeout_s=_ROLE_TIMEOUT_S,
        )

    def step_clock(self, name: str, step_s: float) -> None:
        """Refuse: a process's real-time clock cannot be set apart from the machine's."""
        raise StateError(
            f"clock_step of {name} by {step_s:g} s: Linux has no clock of one process's own but the"
            " monotonic one; this drill needs machines"
        )

    def problems(self) -> list[str]:
        """Return what `prfaasctl status` complains of."""
        return problems_of(self.observed)

    def snapshot(self) -> Snapshot:
        """Return requests, rooms, memory, lanes, nodes and leases."""
        return take_snapshot(self.observed)

    def requests_counted(self) -> float | None:
        """Return the sum of the gateway's `prfaas_requests_total`."""
        text = self.observed.gateway_metrics()
        return None if text is None else sum(map(float, _COUNTED.findall(text)))


def _signal_session(process: Any, number: int) -> None:
    if isinstance(process, ProcessId) and is_alive(process):
        for member in session_members(process):
            send_signal(member, number)
