"""Byte and packet counters of a region's end of the link."""

from pathlib import Path

from prfaas.errors import StateError
from prfaas_netem.namespace import inside
from prfaas_netem.topology import WAN_INTERFACE, Topology


def wan_bytes(topology: Topology, region: str) -> dict[str, int]:
    """Return `tx_bytes`, `rx_bytes`, `tx_packets`, `rx_packets` of a region's WAN interface.

    Seen from the region: tx is what it sent. Takes well under a millisecond. A super-packet (GSO)
    counts as one packet with one header, so bytes are up to 4 % below what a wire would carry.

    Raises: StateError when the namespace or its interface is missing.
    """
    namespace = topology.namespace(region)
    with inside(namespace):
        text = Path("/proc/thread-self/net/dev").read_text()
    return parse_counters(text, interface=WAN_INTERFACE, where=namespace)


def parse_counters(text: str, *, interface: str, where: str) -> dict[str, int]:
    """Return an interface's counters from the text of `/proc/net/dev`.

    Raises: StateError when the interface is not in it.
    """
    for line in text.splitlines():
        name, separator, numbers = line.partition(":")
        if separator and name.strip() == interface:
            values = [int(number) for number in numbers.split()]
            return {
                "tx_bytes": values[8],
                "rx_bytes": values[0],
                "tx_packets": values[9],
                "rx_packets": values[1],
            }
    raise StateError(f"network namespace {where} has no interface {interface}")
