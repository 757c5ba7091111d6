"""Second copies of packets: sent by the router itself, past the queues."""

import contextlib
import socket

from prfaas.errors import PreflightError

_DESTINATION = slice(16, 20)


class PacketCopies:
    """Sends whole IPv4 packets as they are. The calling thread is inside the router.

    They leave through the router's OUTPUT chain, so no queue sees them again.

    Raises: PreflightError when not allowed.
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        except OSError as error:
            raise PreflightError(
                f"cannot open a raw socket: {error.strerror}; run as root"
            ) from error
        self._socket.setblocking(False)

    def send(self, packet: bytes) -> None:
        """Send a packet to where its header says; one that finds no room is lost."""
        target = socket.inet_ntoa(packet[_DESTINATION])
        with contextlib.suppress(OSError):
            self._socket.sendto(packet, (target, 0))

    def close(self) -> None:
        """Send no more."""
        self._socket.close()
