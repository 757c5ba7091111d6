"""Settings of a transport node."""

from dataclasses import dataclass, field

from prfaas.errors import ConfigError
from prfaas.wire.limits import MAX_LANES, MAX_PAYLOAD_BYTES
from prfaas_transport.channel import ChannelFactory, PlainChannels


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportConfig:
    """Settings of a transport node. Raises: ConfigError.

    lanes: connections per peer (receiver).
    chunk_bytes: most payload bytes of a chunk; an item larger than this makes a chunk of its own.
    max_queued_chunks: chunks of all rooms that may wait for their acknowledgement (sender).
    liveness_s: a lane that sent nothing for so long sends PING; three times as long without a byte
        from the peer closes it.
    connect_timeout_s: from the dial to the WELCOME.
    room_timeout_s: deadline of a room, from when it is opened.
    blank_groups: fault injection; the payload of groups whose name starts with one of these goes
        out as zero bytes.
    channel_factory: wraps every lane's socket, dialled or accepted.
    """

    lanes: int = 4
    chunk_bytes: int = 1 << 20
    max_queued_chunks: int = 1 << 16
    liveness_s: float = 2.0
    connect_timeout_s: float = 5.0
    room_timeout_s: float = 300.0
    blank_groups: frozenset[str] = frozenset()
    channel_factory: ChannelFactory = field(default_factory=PlainChannels)

    def __post_init__(self) -> None:
        _check("lanes", self.lanes, 1, MAX_LANES)
        _check("chunk_bytes", self.chunk_bytes, 1, MAX_PAYLOAD_BYTES)
        _check("max_queued_chunks", self.max_queued_chunks, 1, 1 << 24)
        _check("liveness_s", self.liveness_s, 0.01, 3600)
        _check("connect_timeout_s", self.connect_timeout_s, 0.01, 3600)
        _check("room_timeout_s", self.room_timeout_s, 0.01, 86400)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"transport: {name} = {value}, allowed are {low} to {high}")
