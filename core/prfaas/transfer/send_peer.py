"""A peer of a sender: one session of a receiver, its lanes and its queues."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from prfaas.transfer.machine import LaneId, RoomKey
from prfaas.transfer.send_room import ChunkOut, SendLeg
from prfaas.wire import Abort, Frame

ChunkKey = tuple[int, int, int]  # room, attempt, chunk


@dataclass(eq=False, slots=True)
class SendLane:
    """One accepted connection; `peer` is None until its HELLO. `features` are those agreed on."""

    peer: "SendPeer | None" = None
    features: int = 0
    refused: bool = False
    control: deque[Frame] = field(default_factory=deque)
    in_flight: dict[ChunkKey, ChunkOut] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class SendPeer:
    """Queues shared by all lanes of the peer; whichever lane can be written to pulls from them."""

    node_id: str
    session: int
    lanes: dict[LaneId, SendLane] = field(default_factory=dict)
    control: deque[Frame] = field(default_factory=deque)
    resend: deque[ChunkOut] = field(default_factory=deque)
    queue: deque[Iterator[ChunkOut]] = field(default_factory=deque)
    unanswered_aborts: dict[RoomKey, Abort] = field(default_factory=dict)

    def next_chunk(self) -> ChunkOut | None:
        """Take the next chunk of a live leg off the queues: first those that a dead lane lost."""
        while self.resend:
            chunk = self.resend.popleft()
            if chunk.leg.live:
                return chunk
        while self.queue:
            chunk_or_none = next(self.queue[0], None)
            if chunk_or_none is not None:
                return chunk_or_none
            self.queue.popleft()
        return None

    def requeue(self, lane: SendLane) -> int:
        """Put the unacknowledged chunks of a dead lane up for the others; return how many."""
        lost = [chunk for chunk in lane.in_flight.values() if chunk.leg.live]
        lane.in_flight.clear()
        self.resend.extend(lost)
        return len(lost)

    def purge(self, leg: SendLeg) -> None:
        """Drop a concluded leg's chunks from the lanes' memory of what is in flight."""
        for lane in self.lanes.values():
            for key in [k for k, chunk in lane.in_flight.items() if chunk.leg is leg]:
                del lane.in_flight[key]
