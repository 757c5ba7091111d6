"""The section `[transfer]` of a node's configuration."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, ip_address

_SMALLEST_CHUNK_BYTES = 4096
_LARGEST_CHUNK_BYTES = 64 << 20
#: As the kernel has them, of at most 15 characters.
_ALGORITHM = re.compile(r"[a-z0-9][a-z0-9_-]{0,14}")
_INTERFACE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,14}")


class Pipelining(StrEnum):
    """What a prefill sends as soon as it is computed."""

    LAYER = "layer"
    CHUNK = "chunk"


class LocalBackend(StrEnum):
    """How caches move between peers of one region: by our lanes, or by a backend of SGLang's."""

    LANES = "lanes"
    MOONCAKE = "mooncake"
    NIXL = "nixl"


@dataclass(frozen=True, slots=True)
class TransferSection:
    """The lanes between peers; handed to the plugin through its environment.

    `lanes`: connections per peer; 0 takes as many as the path needs. `chunk_bytes`: most payload
    bytes of a chunk; 0 follows the path. `digests`: a checksum of every chunk: "on", "off", or
    "auto": unless TLS makes it needless. `compression`: "off", or "auto": chunks are encoded
    without loss while the link is the limit and that pays. `pipelining`: a prefill sends each
    layer, or each of its chunks, as soon as it is computed.
    `local_backend`: how peers of one region send to one another; it never crosses regions.
    `congestion_control`: as the kernel names it, or "auto": the system's, and bbr for paths that
    lose packets though no queue builds up. `source_hosts`: addresses of this machine that a decode
    dials from in turn, one of each network card that is to carry a part.
    """

    lanes: int = 0
    chunk_bytes: int = 0
    liveness_s: float = 2.0
    room_timeout_s: float = 300.0
    blank_groups: tuple[str, ...] = ()
    congestion_control: str = "auto"
    source_hosts: tuple[str, ...] = ()
    digests: str = "auto"
    compression: str = "off"
    pipelining: Pipelining = Pipelining.LAYER
    local_backend: LocalBackend = LocalBackend.LANES


def transfer_limits(section: TransferSection) -> list[tuple[str, float, float, float]]:
    """Return (key, value, least, most) of every number."""
    return [
        ("transfer.lanes", section.lanes, 0, 64),
        ("transfer.chunk_bytes", section.chunk_bytes, 0, _LARGEST_CHUNK_BYTES),
        ("transfer.liveness_s", section.liveness_s, 0.1, 3600),
        ("transfer.room_timeout_s", section.room_timeout_s, 1, 86400),
    ]


def transfer_problems(section: TransferSection) -> Iterator[str]:
    """Yield what is wrong with the values that are no mere numbers, and what is allowed."""
    if section.digests not in ("auto", "on", "off"):
        yield f"transfer.digests = {section.digests!r}: allowed: auto, on, off"
    if section.compression not in ("auto", "off"):
        yield f"transfer.compression = {section.compression!r}: allowed: auto, off"
    if not _ALGORITHM.fullmatch(section.congestion_control):
        yield (
            f"transfer.congestion_control = {section.congestion_control!r}:"
            " allowed: auto, or a name in /proc/sys/net/ipv4/tcp_available_congestion_control"
        )
    for host in section.source_hosts:
        if not _can_dial_from(host):
            yield f"transfer.source_hosts: {host!r}: allowed are addresses of this machine"
    if 0 < section.chunk_bytes < _SMALLEST_CHUNK_BYTES:
        yield (
            f"transfer.chunk_bytes = {section.chunk_bytes}:"
            f" allowed is 0 or {_SMALLEST_CHUNK_BYTES} to {_LARGEST_CHUNK_BYTES}"
        )


def _can_dial_from(host: str) -> bool:
    """Say whether it is the address of one card; 0.0.0.0 is of all, which the kernel picks from.

    >>> [_can_dial_from(host) for host in ("10.0.0.1", "fe80::1%eth0", "0.0.0.0", "224.0.0.1")]
    [True, True, False, False]
    """
    try:
        address = ip_address(host)
    except ValueError:
        return False
    zone = address.scope_id if isinstance(address, IPv6Address) else None
    if zone is not None and not _INTERFACE.fullmatch(zone):
        return False
    return not (address.is_unspecified or address.is_multicast or host == "255.255.255.255")
