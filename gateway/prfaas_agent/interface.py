"""Find the network interface that carries an address."""

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915
_REQUEST_BYTES = 256


def interface_of(address: str) -> str:
    """Return the name of this namespace's interface with a host's IPv4 address, else `lo`."""
    wanted = socket.inet_aton(socket.gethostbyname(address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if _address_of(probe, name) == wanted:
                return name
    return "lo"


def _address_of(probe: socket.socket, name: str) -> bytes | None:
    request = struct.pack(f"{_REQUEST_BYTES}s", name.encode())
    try:
        return fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24]
    except OSError:
        # An interface without an IPv4 address.
        return None
