"""What the machines tell their owner."""

from dataclasses import dataclass, field

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RoomOpened:
    """Sender: `peer` opened the room and granted so many items per group name."""

    room: int
    peer: str
    prefix_tokens: int
    grants: dict[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class RoomSent:
    """Sender: every peer of the room holds all items; source memory is no longer read."""

    room: int


@dataclass(frozen=True, slots=True)
class RoomReceived:
    """Receiver: all granted items are in place; destination memory is no longer written."""

    room: int


@dataclass(frozen=True, slots=True)
class RoomFailed:
    """Either side: the room is over; its memory is neither read nor written any more."""

    room: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """Sender: the first lane of a session of node `peer` is welcome."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerUp:
    """Receiver: the first lane to `address` is up."""

    address: Address
    node_id: str
    session: int


@dataclass(frozen=True, slots=True)
class PeerLost:
    """Either side: no lane is left, or the session changed; the peer's rooms failed before this.

    `peer` is the node id, empty if a receiver never learned it; `address` is None on a sender.
    """

    peer: str
    reason: str
    address: Address | None = None


SendEvent = RoomOpened | RoomSent | RoomFailed | PeerJoined | PeerLost
ReceiveEvent = RoomReceived | RoomFailed | PeerUp | PeerLost
