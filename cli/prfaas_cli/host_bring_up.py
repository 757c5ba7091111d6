"""The steps of `prfaasctl hosts up`: wires, roots, boot, and the wait for every sshd."""

import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prfaas.errors import StateError
from prfaas_cli import full_host
from prfaas_cli.bring_up import BringUp
from prfaas_cli.failures import ProblemsError
from prfaas_cli.host_plan import FullHost, key_file, known_hosts_file, plan_hosts
from prfaas_cli.output import Output
from prfaas_cli.place import Place
from prfaas_cli.process_plan import ProcessSpec
from prfaas_cli.processes import process_of, read_supervisor
from prfaas_cli.spawn import tail
from prfaas_cli.ssh_keys import public_line, write_key

if TYPE_CHECKING:
    from prfaas_netem import Topology

SSH_PORT = 22
_PREFLIGHT = 3
_POLL_S = 0.1
_CONNECT_TIMEOUT_S = 1.0
_PROGRAMS = {"systemd-nspawn": "systemd-container", "/usr/sbin/sshd": "openssh-server"}
_PROGRAMS |= {"mount": "mount", "ssh": "openssh-client"}


def check_machine() -> None:
    """Look for what full hosts need.

    Raises:
        ProblemsError: all that is missing, exit code 3.
    """
    problems = [] if os.geteuid() == 0 else ["full hosts need root; run as root"]
    problems += [
        f"{program} is not installed; install the package {package}"
        for program, package in _PROGRAMS.items()
        if shutil.which(program) is None
    ]
    if problems:
        raise ProblemsError(problems, exit_code=_PREFLIGHT)


def read_hosts(place: Place) -> tuple["Topology", str]:
    """Return the topology of the hosts of a place, and the text of its file.

    Raises:
        StateError: no hosts were made there.
    """
    from dataclasses import replace

    from prfaas_netem import parse_topology

    text = (place.read_deployment() or {}).get("hosts")
    if not isinstance(text, str):
        raise StateError(
            f"no full hosts of the name {place.name} in {place.root}; run prfaasctl hosts up"
        )
    return replace(parse_topology(text), deployment=place.name), text


def bring_up(
    place: Place, topology: "Topology", text: str, output: Output, *, timeout_s: float
) -> tuple[str, tuple[FullHost, ...]]:
    """Make all hosts and wait for them; return what was done. Call with the place locked.

    Raises:
        StateError: they do not come up in time, or others are there.
    """
    hosts = plan_hosts(place, topology, text)
    found = place.read_deployment()
    if found is not None and found.get("hosts") != text:
        raise StateError(f"{place.name} has another topology; run prfaasctl hosts down first")
    if found is not None and all(answers(host) for host in hosts):
        return "nothing to do", hosts
    steps = BringUp(place, output)
    place.logs.mkdir(exist_ok=True)
    place.write_deployment(_document(place, hosts, text))
    if not place.topology_file.exists():
        topology.save(place.topology_file)
    from prfaas_netem import create

    if create(topology):
        output.step("regions and wires")
    write_key(key_file(place), comment=f"prfaas-{place.name}")
    opened_by = public_line(key_file(place))
    made = [full_host.prepare(host, hosts, opened_by=opened_by) for host in hosts]
    lines = "".join(full_host.host_key_line(host) + "\n" for host in hosts)
    known_hosts_file(place).write_text(lines)
    output.step(f"{len(hosts)} root file systems")
    supervisor = process_of(read_supervisor(place))
    if supervisor is None or not Path(f"/proc/{supervisor.pid}").exists():
        steps.start_supervisor()
    _wait(place, hosts, output, timeout_s=timeout_s)
    return ("made" if all(made) else "repaired"), hosts


def answers(host: FullHost) -> bool:
    """Return whether the host's sshd greets."""
    from prfaas_netem import inside

    try:
        with inside(host.namespace):
            connection = socket.create_connection(
                (host.address, SSH_PORT), timeout=_CONNECT_TIMEOUT_S
            )
        with connection:
            return connection.recv(4) == b"SSH-"
    except (OSError, StateError):
        return False


def _wait(place: Place, hosts: Sequence[FullHost], output: Output, *, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    left = list(hosts)
    while left:
        for host in [host for host in left if answers(host)]:
            left.remove(host)
            output.step(f"host {host.name} at {host.address}")
        if left and time.monotonic() > deadline_s:
            log = place.log(left[0].process)
            for line in tail(log, lines=10):
                output.note(line)
            raise StateError(f"host {left[0].name} is not up after {timeout_s:g} s; see {log}")
        time.sleep(_POLL_S)


def _document(place: Place, hosts: Sequence[FullHost], text: str) -> dict[str, Any]:
    link = [sys.executable, "-m", "prfaas_netem.link", "--topology", str(place.topology_file)]
    specs = [ProcessSpec("link", (*link, "--control", str(place.link_socket)), stop_wave=1)]
    for host in hosts:
        enter = [sys.executable, "-m", "prfaas_cli.host_process", host.cgroup, "--"]
        specs.append(ProcessSpec(host.process, (*enter, *full_host.nspawn_argv(host))))
    processes = [spec.to_json() for spec in specs]
    return {"options": {}, "processes": processes, "hosts": text, "created_at_s": time.time()}
