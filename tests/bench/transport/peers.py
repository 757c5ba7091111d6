"""Other transfer libraries: their settings, and a pair of processes of one."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from endpoints import Endpoint, Environment
from paths import NetworkPath

PYTHON = Path(__file__).parents[3] / "build/bench/venv/bin/python"

_MOONCAKE = {"MC_FORCE_TCP": "1", "MC_LOG_LEVEL": "ERROR"}
_MOONCAKE_TUNED = {
    **_MOONCAKE,
    "MC_TCP_ENABLE_CONNECTION_POOL": "1",
    "MC_TCP_LANES_PER_PEER": "8",
    "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "65535",
    "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "65535",
    "MC_TCP_ADMISSION_TIMEOUT_MS": "120000",
}
_NIXL = {"UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "error", "NIXL_LOG_LEVEL": "error"}


@dataclass(frozen=True)
class Peer:
    """A library, and its settings as variables of its processes."""

    library: str
    variables: dict[str, str]


PEERS = {
    "Mooncake": Peer("mooncake", _MOONCAKE),
    "Mooncake, tuned": Peer("mooncake", _MOONCAKE_TUNED),
    "NIXL": Peer("nixl", _NIXL),
}


def are_installed() -> bool:
    return PYTHON.exists()


@contextmanager
def peer_pair(path: NetworkPath, peer: Peer) -> Iterator[tuple[Endpoint, Endpoint]]:
    """A sender and a receiver of the library that have not spoken with each other."""
    variables = {**peer.variables, "UCX_NET_DEVICES": path.interface}
    environment = Environment(str(PYTHON), variables, is_chatty=True, sees_own_devices=True)
    script = ("peer_endpoint.py", peer.library)
    with ExitStack() as stack:
        args = (*script, "receive", path.hosts[1])
        receive = Endpoint(path.namespaces[1], *args, environment=environment)
        stack.callback(receive.close)
        args = (*script, "send", path.hosts[0], json.dumps(receive.hello))
        send = Endpoint(path.namespaces[0], *args, environment=environment)
        stack.callback(send.close)
        yield send, receive
