"""Every packet on a region's WAN interface, as a stranger on the link would see it."""

import socket
import threading

from prfaas_netem import Topology, inside
from prfaas_netem.counters import WAN_INTERFACE

_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 64 << 20
_MAX_PACKET_BYTES = 1 << 18


class PacketTap:
    """Collects packets from its making to `close()`; both directions."""

    def __init__(self, topology: Topology, region: str) -> None:
        self.packets: list[bytes] = []
        with inside(topology.namespace(region)):
            self._socket = socket.socket(
                socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)
            )
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind((WAN_INTERFACE, 0))
        self._socket.settimeout(0.1)
        self._closing = False
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while not self._closing:
            try:
                self.packets.append(self._socket.recv(_MAX_PACKET_BYTES))
            except TimeoutError:
                continue

    def close(self) -> None:
        """Stop collecting."""
        self._closing = True
        self._thread.join()
        self._socket.close()

    @property
    def num_bytes(self) -> int:
        """How much was seen."""
        return sum(map(len, self.packets))

    def count(self, pattern: bytes) -> int:
        """Return how many packets hold these bytes."""
        return sum(pattern in packet for packet in self.packets)
