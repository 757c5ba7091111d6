"""What of a deployment must be the same before and after a drill, as its parts tell it."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prfaas.errors import StateError
from prfaas_agent.process import command_line
from prfaas_cli.observation import Observed
from prfaas_cli.processes import recorded_processes
from prfaas_cli.region_http import request
from prfaas_loadtest.drills import Snapshot
from prfaas_transport import read_stats

_LOADS = ("num_running_reqs", "num_waiting_reqs", "token_usage")
_FLEET = ("in_flight", "backlog_tokens")
_TIMEOUT_S = 3.0
_LOOPBACK = "127.0.0.1"


def take_snapshot(observed: Observed) -> Snapshot:
    """Return requests, rooms, memory in use, lanes, nodes and leases.

    Raises:
        StateError: a part does not tell.
    """
    nodes = observed.nodes()
    if nodes is None:
        raise StateError("etcd does not answer")
    values = dict(_of_gateway(observed))
    pairs: set[str] = set()
    for name in observed.engine_nodes:
        if name not in nodes:
            raise StateError(f"{name} is not registered")
        values |= _of_engine(observed, name, nodes[name].url)
        stats = _stats(observed, name)
        values |= {
            f"{name} {key}": float(stats[key])
            for key in ("rooms_open", "chunks_queued")
            if key in stats
        }
        pairs |= set(_pairs(name, stats))
    return Snapshot(
        values, frozenset(pairs), frozenset(nodes), observed.leases(), _descriptors(observed)
    )


def _of_gateway(observed: Observed) -> Iterator[tuple[str, float]]:
    fleet = observed.fleet()
    if fleet is None:
        raise StateError("the gateway does not tell of its fleet")
    yield "gateway active_requests", float(fleet["active_requests"])
    for node in fleet["nodes"]:
        for key in _FLEET:
            yield f"gateway {node['name']} {key}", float(node.get(key) or 0)


def _of_engine(observed: Observed, name: str, url: str) -> dict[str, float]:
    """Return an engine's queues and memory; with TLS on it listens on loopback alone."""
    region = name.split("-")[0]
    topology = observed.topology
    is_tls = url.startswith("https")
    host = _LOOPBACK if is_tls else topology.address(region)
    port = int(url.rstrip("/").rpartition(":")[2])
    answer = request(topology.namespace(region), (host, port), "/v1/loads")
    if answer is None:
        raise StateError(f"{name} does not tell of its load")
    (load,) = answer["loads"]
    found = {f"{name} {key}": float(load.get(key) or 0) for key in _LOADS}
    queues: Mapping[str, Any] = load.get("disaggregation") or {}
    found |= {
        f"{name} {key}": float(value) for key, value in queues.items() if key.endswith("_reqs")
    }
    return found


def _stats(observed: Observed, name: str) -> dict[str, Any]:
    try:
        return read_stats(observed.place.stats_socket(name), timeout_s=_TIMEOUT_S)
    except (OSError, ValueError) as error:
        raise StateError(f"{name} does not tell of its transfers: {error}") from None


def _pairs(name: str, stats: dict[str, Any]) -> Iterator[str]:
    """Yield the peers with lanes of a sender, which knows them by name."""
    for peer, told in (stats.get("peers") or {}).items():
        if "signals" in told and told.get("lanes"):
            yield f"{name} > {peer}"


def _descriptors(observed: Observed) -> dict[str, int]:
    """Return how many descriptors each process has open, by its name and id."""
    found = {}
    for process in recorded_processes(observed.place):
        with contextlib.suppress(OSError):
            name = f"{command_line(process).rpartition('/')[2] or 'process'} ({process.pid})"
            found[name] = sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())
    return found
