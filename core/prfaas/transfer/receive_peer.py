"""A peer of a receiver: one sender's address, its lanes, and when to dial them again."""

from collections import deque
from dataclasses import dataclass, field

from prfaas.transfer.events import Address
from prfaas.transfer.machine import LaneId, RoomKey
from prfaas.transfer.receive_room import ReceiveRoom
from prfaas.wire import Abort, Ack, Chunk, Frame, Hello
from prfaas.wire.limits import MAX_ACK_CHUNKS

MIN_BACKOFF_S = 0.05
MAX_BACKOFF_S = 2.0
MAX_SPARES = 4
"""Lanes that may be dialled besides, each around a stall of all others."""


@dataclass(eq=False, slots=True)
class ReceiveLane:
    """One dialled connection. `hello` is what we said, `features` are those agreed on.

    `chunk` is the chunk whose payload is being read, `target` the room that it is written to; None
    means that it is discarded. `condemned` says why it is closed once another lane is welcome.
    """

    peer: "ReceivePeer"
    number: int
    hello: Hello
    features: int = 0
    welcome: bool = False
    condemned: str = ""
    chunk: Chunk | None = None
    target: ReceiveRoom | None = None
    control: deque[Frame] = field(default_factory=deque)
    acks: dict[RoomKey, list[int]] = field(default_factory=dict)
    num_acks: int = 0

    def next_ack(self) -> Ack | None:
        """Take one ACK of the chunks that were read from this lane."""
        for (room, attempt), chunks in self.acks.items():
            if len(chunks) <= MAX_ACK_CHUNKS:
                del self.acks[room, attempt]
            else:
                self.acks[room, attempt] = chunks[MAX_ACK_CHUNKS:]
            numbers = tuple(chunks[:MAX_ACK_CHUNKS])
            self.num_acks -= len(numbers)
            return Ack(room, attempt, numbers)
        return None


@dataclass(eq=False, slots=True)
class DialSlot:
    """The lane of one number: connected or being dialled (`lane`), or due at `dial_s`.

    `is_spare`: it is there for an outage only.
    """

    dial_s: float
    backoff_s: float = MIN_BACKOFF_S
    lane: LaneId | None = None
    is_spare: bool = False

    def retry(self, now: float) -> None:
        """Free the slot and put off the next dial, twice as long as the last time."""
        self.lane = None
        self.dial_s = now + self.backoff_s
        self.backoff_s = min(2 * self.backoff_s, MAX_BACKOFF_S)

    def reset_backoff(self) -> None:
        """Have the next dial put off for as short as can be."""
        self.backoff_s = MIN_BACKOFF_S


@dataclass(eq=False, slots=True)
class ReceivePeer:
    """Queues and lanes to one address.

    `our_session` is what HELLO says; `session` is the sender's, None until a lane is welcome.
    """

    address: Address
    our_session: int
    slots: list[DialSlot]
    node_id: str = ""
    session: int | None = None
    lanes: dict[LaneId, ReceiveLane] = field(default_factory=dict)
    control: deque[Frame] = field(default_factory=deque)
    unanswered_aborts: dict[RoomKey, Abort] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        """Say whether a lane is welcome."""
        return any(lane.welcome for lane in self.lanes.values())

    @property
    def is_whole(self) -> bool:
        """Say whether every lane is welcome and none is to be replaced."""
        lanes = self.lanes.values()
        is_full = len(lanes) == len(self.slots)
        return is_full and all(lane.welcome and not lane.condemned for lane in lanes)

    def stands_on(self, lane: ReceiveLane) -> bool:
        """Say whether the peer has no other lane that is welcome and stays."""
        others = (other for other in self.lanes.values() if other is not lane)
        return not any(other.welcome and not other.condemned for other in others)

    def slot_to_dial(self, now: float) -> DialSlot | None:
        """Return a slot without a lane, a new one if all have theirs; None while one is dialled or
        there are too many."""
        if any(not lane.welcome for lane in self.lanes.values()):
            return None
        free = next((slot for slot in self.slots if slot.lane is None), None)
        if free is None and sum(slot.is_spare for slot in self.slots) < MAX_SPARES:
            free = DialSlot(now, is_spare=True)
            self.slots.append(free)
        return free
