"""The frames, as frozen values. Byte layouts are in `prfaas.wire.codec`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of a lane, receiver to sender.

    `groups` lists each layout group's name and the `item_bytes` of its entries, in order; it serves
    to explain a mismatch of `digest` (32 bytes).
    """

    node_id: str
    session: int
    lane: int
    lanes: int
    digest: bytes
    groups: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The sender takes the lane."""

    node_id: str
    session: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The sender does not take the lane and closes it."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Open:
    """The receiver opens a room; `grants` is the number of items per layout group, in order."""

    room: int
    attempt: int
    deadline_ms: int
    prefix_tokens: int
    grants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items `start .. start+count` of a grant, for one entry; `payload_bytes` bytes follow."""

    room: int
    attempt: int
    chunk: int
    group: int
    entry: int
    start: int
    count: int
    payload_bytes: int


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


Frame = Hello | Welcome | Refuse | Open | Chunk | Fin | Ack | Done | Abort | Aborted | Ping | Pong
