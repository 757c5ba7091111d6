"""The frames, as frozen values. Byte layouts are in `prfaas.wire.codec`."""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from prfaas.wire.limits import VERSION


class Feature(IntFlag):
    """What HELLO offers and WELCOME accepts; bits that this side does not know are ignored."""

    DIGESTS = 1
    COMPRESSION = 2


class Priority(IntEnum):
    """Of a room: a request waits for its KV cache, or nobody does."""

    FOREGROUND = 0
    BACKGROUND = 1


class Encoding(IntEnum):
    """Of a chunk's payload: as it is, or in byte planes of elements that are so many bytes wide."""

    PLAIN = 0
    PLANES_1 = 1
    PLANES_2 = 2
    PLANES_4 = 4


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a lane, receiver to sender.

    `groups` lists each layout group's name and the `item_bytes` of its entries, in order; it serves
    to explain a mismatch of `digest` (32 bytes). `auth` is empty where no secret is set.
    """

    node_id: str
    session: int
    lane: int
    lanes: int
    digest: bytes
    groups: tuple[tuple[str, tuple[int, ...]], ...]
    features: int = 0
    auth: bytes = b""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The sender takes the lane; `features` are those of HELLO that it accepts."""

    node_id: str
    session: int
    features: int = 0
    auth: bytes = b""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The sender does not take the lane and closes it.

    The frame looks the same in all versions; it is sent with the `version` that the peer speaks.
    """

    reason: str
    text: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Open:
    """The receiver opens a room; `grants` is the number of items per layout group, in order.

    `capability` shows that the receiver may have this room; empty where no secret is set.
    """

    room: int
    attempt: int
    deadline_ms: int
    prefix_tokens: int
    grants: tuple[int, ...]
    priority: int = Priority.FOREGROUND
    capability: bytes = b""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items `start .. start+count` of a grant, for one entry; `payload_bytes` bytes follow.

    `plain_bytes` is the size of the payload once it is decoded; 0 stands for `payload_bytes`, which
    it is without an encoding. `digest` is XXH3-64 of the payload as sent, 0 if there is none.
    """

    room: int
    attempt: int
    chunk: int
    group: int
    entry: int
    start: int
    count: int
    payload_bytes: int
    plain_bytes: int = 0
    digest: int = 0
    encoding: int = Encoding.PLAIN

    def __post_init__(self) -> None:
        if not self.plain_bytes and not self.encoding:
            object.__setattr__(self, "plain_bytes", self.payload_bytes)


@dataclass(frozen=True, slots=True)
class Fin:
    """The sender will queue no more; `totals` is the number of items sent per layout group."""

    room: int
    attempt: int
    totals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """The receiver holds these chunks; goes out on the lane on which the chunks came."""

    room: int
    attempt: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The receiver holds every granted item of the room."""

    room: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Abort:
    """The room failed; `reason` is a word of `[a-z0-9_]`, `text` is for people."""

    room: int
    attempt: int
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """Answer to ABORT."""

    room: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Sent on a lane that had nothing else to send for a while."""

    nonce: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to PING, with its nonce."""

    nonce: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """Stands for the first frame of a peer that speaks another version; is never sent."""

    version: int


Sendable = (
    Hello | Welcome | Refuse | Open | Chunk | Fin | Ack | Done | Abort | Aborted | Ping | Pong
)
Frame = Sendable | Foreign
