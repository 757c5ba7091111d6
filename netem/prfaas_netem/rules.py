"""Packet rules of the router: whatever is forwarded goes to a queue, and nowhere without one.

A queue that nobody reads drops, and so does the chain's policy: a link whose emulator is gone, or
whose rules are being repaired, is down; it is never a short cut.
"""

import subprocess
from collections.abc import Iterator

from prfaas.errors import PreflightError
from prfaas_netem.namespace import inside
from prfaas_netem.topology import Topology
from prfaas_netem.ways import Direction

_CHAIN = "FORWARD"
_ACCEPT_ALL = ("-j", "ACCEPT")


def queue_rules_stand(topology: Topology) -> bool:
    """Return whether both directions go to their queues, and all else is dropped."""
    with inside(topology.router_namespace):
        if f"-P {_CHAIN} DROP" not in _run("-S", _CHAIN).stdout.splitlines():
            return False
        return all(_has(rule) for rule in _rules(topology))


def make_queue_rules(topology: Topology) -> None:
    """Send both directions to their queues and drop all else; other rules go."""
    with inside(topology.router_namespace):
        _iptables("-P", _CHAIN, "DROP")
        _iptables("-F", _CHAIN)
        for rule in _rules(topology):
            _iptables("-A", _CHAIN, *rule)


def set_kernel_path(topology: Topology, *, open_: bool) -> None:
    """Let forwarded packets pass the queues by, or stop that. Only for a link the kernel shapes."""
    with inside(topology.router_namespace):
        if open_ != _has(_ACCEPT_ALL):
            _iptables("-I" if open_ else "-D", _CHAIN, *_ACCEPT_ALL)


def probe_queue_rule() -> None:
    """Add a queue rule in the calling thread's namespace.

    Raises: PreflightError when the kernel or iptables cannot.
    """
    _iptables("-A", _CHAIN, "-j", "NFQUEUE", "--queue-num", "0")


def _rules(topology: Topology) -> Iterator[tuple[str, ...]]:
    """Yield the rules that stand: queues between regions, free ways between hosts of one."""
    for direction in topology.directions():
        yield _queue_rule(direction)
    for region in topology.regions:
        bridge = topology.ports(region)[0].bridge
        if bridge is not None:  # some kernels show bridged packets to this chain, some do not
            yield ("-i", bridge, "-o", bridge, *_ACCEPT_ALL)


def _queue_rule(direction: Direction) -> tuple[str, ...]:
    ways = ("-i", direction.in_interface, "-o", direction.out_interface)
    return (*ways, "-j", "NFQUEUE", "--queue-num", str(direction.queue))


def _has(rule: tuple[str, ...]) -> bool:
    return _run("-C", _CHAIN, *rule).returncode == 0


def _iptables(*arguments: str) -> None:
    done = _run(*arguments)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise PreflightError(f"iptables {' '.join(arguments)}: {lines[0]}")


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["iptables", "-w", "5", "-t", "mangle", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError as error:
        raise PreflightError("iptables is not installed; install the package iptables") from error
