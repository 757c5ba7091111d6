"""Settings of a transport node."""

import os
from dataclasses import dataclass, field

from prfaas.errors import ConfigError
from prfaas.transfer.capability import Secret
from prfaas.wire import Feature
from prfaas.wire.limits import MAX_LANES, MAX_PAYLOAD_BYTES
from prfaas_transport.channel import ChannelFactory, PlainChannels

MAX_IO_THREADS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportConfig:
    """Settings of a transport node. Raises: ConfigError.

    lanes: connections per peer (receiver); 0 takes eight, and more where buffers limit every one.
    io_threads: threads that share the lanes.
    congestion_control: of the lanes' sockets, as the kernel names it; empty leaves the system's;
        "auto" does too, and takes bbr for peers whose path loses packets though no queue builds up.
    source_hosts: local addresses to dial from (receiver); the lanes of a peer take turns.
    warm_bytes: sent on every new lane to open its congestion window before the first room needs it
        (sender); 0 does without.
    chunk_bytes: most payload bytes of a chunk; an item larger than this makes a chunk of its own; 0
        takes what the path carries in a hundredth of a second (sender).
    max_queued_chunks: chunks of all rooms that may wait for their acknowledgement (sender).
    liveness_s: a lane is closed within so long of the last packet from the peer's host, and after
        three times as long without a byte from a peer whose host still acknowledges.
    connect_timeout_s: from the dial to the WELCOME.
    room_timeout_s: deadline of a room, from when it is opened.
    blank_groups: fault injection; the payload of groups whose name starts with one of these goes
        out as zero bytes.
    checksums: every chunk carries a digest; None: where the lanes are not encrypted.
    compression: "off", or "auto": chunks are encoded while the link is the limit and that pays,
        where the peer does the same.
    channel_factory: wraps every lane's socket, dialled or accepted.
    secret: proves peers and rooms to each other; without one, everyone is trusted.
    """

    lanes: int = 0
    io_threads: int = 4
    congestion_control: str = "auto"
    source_hosts: tuple[str, ...] = ()
    warm_bytes: int = 1 << 20
    chunk_bytes: int = 0
    max_queued_chunks: int = 1 << 16
    liveness_s: float = 2.0
    connect_timeout_s: float = 5.0
    room_timeout_s: float = 300.0
    blank_groups: frozenset[str] = frozenset()
    checksums: bool | None = None
    compression: str = "off"
    channel_factory: ChannelFactory = field(default_factory=PlainChannels)
    secret: Secret | None = None

    def __post_init__(self) -> None:
        _check("lanes", self.lanes, 0, MAX_LANES)
        _check("io_threads", self.io_threads, 1, MAX_IO_THREADS)
        _check("warm_bytes", self.warm_bytes, 0, 1 << 30)
        _check("chunk_bytes", self.chunk_bytes, 0, MAX_PAYLOAD_BYTES)
        _check("max_queued_chunks", self.max_queued_chunks, 1, 1 << 24)
        _check("liveness_s", self.liveness_s, 0.01, 3600)
        _check("connect_timeout_s", self.connect_timeout_s, 0.01, 3600)
        _check("room_timeout_s", self.room_timeout_s, 0.01, 86400)
        if self.compression not in ("off", "auto"):
            raise ConfigError(f"transport: compression = {self.compression!r}: allowed: off, auto")

    @property
    def features(self) -> Feature:
        """What HELLO offers and WELCOME accepts."""
        is_plain = isinstance(self.channel_factory, PlainChannels)
        has_checksums = is_plain if self.checksums is None else self.checksums
        digests = Feature.DIGESTS if has_checksums else Feature(0)
        return digests | (Feature.COMPRESSION if self.compression == "auto" else Feature(0))

    @property
    def codec_threads(self) -> int:
        """How many threads encode at a time: as many as there are cores for, of those that do."""
        return min(self.io_threads, len(os.sched_getaffinity(0)))


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"transport: {name} = {value}, allowed are {low} to {high}")
