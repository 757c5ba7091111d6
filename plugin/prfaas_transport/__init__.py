"""Sockets and memory under the transfer machines of `prfaas.transfer`.

A prefill worker has a `SendNode`, a decode worker a `ReceiveNode`. Each runs one I/O thread.
"""

from prfaas.transfer.events import (
    PeerJoined,
    PeerLost,
    PeerUp,
    ReceiveEvent,
    RoomFailed,
    RoomOpened,
    RoomReceived,
    RoomSent,
    SendEvent,
)
from prfaas.transfer.layout import Entry, Group, Layout
from prfaas.transfer.reasons import Reason
from prfaas_transport.config import TransportConfig
from prfaas_transport.memory import Memory, TransferMemory
from prfaas_transport.receive_node import ReceiveNode
from prfaas_transport.send_node import SendNode
from prfaas_transport.stats_socket import StatsServer, read_stats, serve_stats

__all__ = [
    "Entry",
    "Group",
    "Layout",
    "Memory",
    "PeerJoined",
    "PeerLost",
    "PeerUp",
    "Reason",
    "ReceiveEvent",
    "ReceiveNode",
    "RoomFailed",
    "RoomOpened",
    "RoomReceived",
    "RoomSent",
    "SendEvent",
    "SendNode",
    "StatsServer",
    "TransferMemory",
    "TransportConfig",
    "read_stats",
    "serve_stats",
]
