"""A peer of a sender: one session of a receiver, its lanes and what it is to be sent."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from prfaas.transfer.compression import CompressionControl
from prfaas.transfer.histogram import ROUND_TRIP_S, Histogram
from prfaas.transfer.machine import LaneId, RoomKey
from prfaas.transfer.random_loss import RandomLoss
from prfaas.transfer.schedule import BackgroundLimits, FairQueue, Traffic
from prfaas.transfer.send_room import ChunkOut, SendLeg
from prfaas.transfer.signals import LaneSample, PathEstimator, PeerSignals
from prfaas.wire import Abort, Frame

OBSERVE_S = 0.15

ChunkKey = tuple[int, int, int]  # room, attempt, chunk


@dataclass(eq=False, slots=True)
class SendLane:
    """One accepted connection; `peer` is None until its HELLO. `features` are those agreed on.

    `timed` is a chunk in flight, and when it was given to the lane: one at a time tells how long
    acknowledgements take, and costs next to nothing.
    """

    peer: "SendPeer | None" = None
    features: int = 0
    refused: bool = False
    control: deque[Frame] = field(default_factory=deque)
    in_flight: dict[ChunkKey, ChunkOut] = field(default_factory=dict)
    timed: tuple[ChunkOut, float] | None = None
    sample: LaneSample | None = None


@dataclass(eq=False, slots=True)
class SendPeer:
    """Queues shared by all lanes of the peer; whichever lane can be written to pulls from them.

    `background_bytes` are sent and not acknowledged, at most `window_bytes` while there is no
    foreground. `backlog_bytes` are ready and not acknowledged. `ack_s` counts how long chunks took
    from a lane's queue to their acknowledgement.
    """

    node_id: str
    session: int
    traffic: Traffic
    foreground: FairQueue
    background: FairQueue
    window_bytes: int
    path: PathEstimator = field(default_factory=PathEstimator)
    signals: PeerSignals = field(default_factory=PeerSignals)
    ack_s: Histogram = field(default_factory=lambda: Histogram(ROUND_TRIP_S))
    observed_s: float = float("-inf")
    compression: CompressionControl = field(default_factory=CompressionControl)
    random_loss: RandomLoss = field(default_factory=RandomLoss)
    background_bytes: int = 0
    backlog_bytes: int = 0
    acked_bytes: int = 0
    lanes: dict[LaneId, SendLane] = field(default_factory=dict)
    control: deque[Frame] = field(default_factory=deque)
    unanswered_aborts: dict[RoomKey, Abort] = field(default_factory=dict)

    def enqueue(self, leg: SendLeg, chunks: Iterator[ChunkOut], num_bytes: int) -> None:
        """Have the chunks sent in the leg's turns."""
        leg.queue.append(chunks)
        leg.pending_bytes += num_bytes
        self.backlog_bytes += num_bytes
        self._queue_of(leg).add(leg)

    def next_chunk(self, lane: SendLane) -> ChunkOut | None:
        """Take the chunk that the lane is to send next; it is in flight from now on."""
        leg = self._next_background() or self.foreground.next_leg()
        if leg is None:
            return None
        chunk = leg.take()
        num_bytes = chunk.frame.payload_bytes
        self._queue_of(leg).charge(leg, num_bytes)
        lane.in_flight[chunk.key] = chunk
        self.traffic.sent(num_bytes, is_foreground=leg.is_foreground)
        if not leg.is_foreground:
            self.background_bytes += num_bytes
        return chunk

    def note_sent(self, lane: SendLane, chunk: ChunkOut, now: float) -> None:
        """Note when a chunk was given to the lane, if it is one to measure."""
        if chunk.leg.first_byte_s is None:
            chunk.leg.first_byte_s = now
        if lane.timed is None or not lane.timed[0].leg.live:
            lane.timed = (chunk, now)

    def note_acked(self, lane: SendLane, key: ChunkKey, now: float) -> None:
        """Measure the chunk, if it is the one."""
        if lane.timed is not None and lane.timed[0].key == key:
            self.ack_s.observe(max(0.0, now - lane.timed[1]))
            lane.timed = None

    def acknowledged(self, lane: SendLane, key: ChunkKey) -> bool:
        """Take a chunk for received; say whether the lane had it in flight."""
        chunk = lane.in_flight.pop(key, None)
        if chunk is None:
            return False
        self._settle(chunk)
        self.backlog_bytes -= chunk.frame.payload_bytes
        self.acked_bytes += chunk.frame.payload_bytes
        chunk.leg.pending_bytes -= chunk.frame.payload_bytes
        chunk.leg.num_pending -= 1
        return True

    def requeue(self, lane: SendLane) -> int:
        """Put the unacknowledged chunks of a dead lane up for the others; return how many."""
        lost = list(lane.in_flight.values())
        lane.in_flight.clear()
        for chunk in lost:
            self._settle(chunk)
            chunk.leg.resend.append(chunk)
            self._queue_of(chunk.leg).add(chunk.leg)
        return len(lost)

    def purge(self, leg: SendLeg) -> None:
        """Drop all that is left of a leg that has ended."""
        for lane in self.lanes.values():
            for key in [k for k, chunk in lane.in_flight.items() if chunk.leg is leg]:
                self._settle(lane.in_flight.pop(key))
        self.backlog_bytes -= leg.pending_bytes
        leg.pending_bytes = leg.num_pending = 0
        leg.queue.clear()
        leg.resend.clear()
        leg.waiting.clear()

    def observe(self, limits: BackgroundLimits, now: float) -> None:
        """Look at what the lanes were last seen to do, once per period."""
        if now - self.observed_s < OBSERVE_S:
            return
        self.observed_s = now
        samples = [lane.sample for lane in self.lanes.values() if lane.sample is not None]
        self.signals = self.path.update(samples, backlog_bytes=self.backlog_bytes, now=now)
        self.window_bytes = limits.window(self.signals)
        self.compression.observe(self.signals, self.acked_bytes, now)
        self.random_loss.observe(self.signals, now)

    def _next_background(self) -> SendLeg | None:
        leg = self.background.next_leg()
        chunk = leg.peek() if leg is not None else None
        if chunk is None:
            return None
        is_allowed = self.traffic.allows(
            chunk.frame.payload_bytes,
            in_flight_bytes=self.background_bytes,
            window_bytes=self.window_bytes,
            is_outranked=self.foreground.next_leg() is not None,
        )
        return leg if is_allowed else None

    def _queue_of(self, leg: SendLeg) -> FairQueue:
        return self.foreground if leg.is_foreground else self.background

    def _settle(self, chunk: ChunkOut) -> None:
        num_bytes, is_foreground = chunk.frame.payload_bytes, chunk.leg.is_foreground
        self.traffic.settled(num_bytes, is_foreground=is_foreground)
        if not is_foreground:
            self.background_bytes -= num_bytes
