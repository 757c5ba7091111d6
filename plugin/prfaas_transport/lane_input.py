"""What comes in on a lane: where its next bytes go, and what they mean."""

from collections.abc import Callable

import numpy as np
import xxhash

from prfaas.wire import Ack, Chunk, Frame, Hello, Ping, Pong, Welcome
from prfaas_transport.buffers import MAX_IOV, EncodedChunk, Segment
from prfaas_transport.lane import Lane
from prfaas_transport.lane_owner import LaneOwner

SCRATCH_BYTES = 64 << 10
TRAILER_BYTES = 4 << 10
WASTE_BYTES = 256 << 10


class LaneInput:
    """Reads frames and payload of the lanes of one I/O thread; all calls under the node's lock.

    `has_ended`: a frame came that may have ended a room, or started something on other lanes.
    `wants_send`: a frame came that lets the lanes send something.
    `num_unanswered`: chunks that came since the thread last asked its lanes what they have to send.
    """

    def __init__(self, owner: LaneOwner, close_dead: Callable[[], None]) -> None:
        self.has_ended = False
        self.wants_send = False
        self.num_unanswered = 0
        self._owner = owner
        self._close_dead = close_dead
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._trailer = self._scratch[:TRAILER_BYTES]
        self._waste = memoryview(bytearray(WASTE_BYTES))

    def views(self, lane: Lane) -> tuple[list[memoryview], int, int]:
        """Return the views to receive into, their bytes, and how many of these are payload."""
        left = lane.decoder.payload_left
        if not left:
            return [self._scratch], SCRATCH_BYTES, 0
        if lane.target is not None and not self._owner.is_target_live(lane.number):
            lane.target = None
        if lane.target is None:
            payload_bytes = min(left, WASTE_BYTES)
            views = [self._waste[:payload_bytes]]
        else:
            views, payload_bytes = lane.target.head(MAX_IOV)
        if payload_bytes < left:
            return views, payload_bytes, payload_bytes
        views.append(self._trailer)
        return views, payload_bytes + TRAILER_BYTES, payload_bytes

    def take(self, lane: Lane, num_bytes: int, payload_bytes: int, now: float) -> None:
        """Act on bytes received into `views`. Raises: ProtocolError.

        Ends early if the lane has an `undecoded` chunk then: decode it and call `decoded`.
        """
        lane.liveness.heard(now)
        lane.bytes_received += num_bytes
        taken = min(num_bytes, payload_bytes)
        if taken:
            lane.decoder.skip_payload(taken)
            if lane.target is not None:
                lane.target.advance(taken)
            if not lane.decoder.payload_left:
                self._payload_done(lane)
        if num_bytes > taken:
            lane.decoder.receive(self._scratch[: num_bytes - taken])
        self._go_on(lane, now)

    def decoded(self, lane: Lane, now: float) -> None:
        """Go on after the payload that was to be decoded is in place, or was left out.

        Raises: ProtocolError.
        """
        lane.undecoded = None
        self._finish(lane)
        self._go_on(lane, now)

    def _go_on(self, lane: Lane, now: float) -> None:
        while not lane.is_closed and lane.undecoded is None and self._step(lane, now):
            pass

    def _step(self, lane: Lane, now: float) -> bool:
        """Act on the next buffered frame or payload; return whether there was one."""
        if lane.decoder.payload_left:
            data = lane.decoder.take_payload()
            if lane.target is not None and self._owner.is_target_live(lane.number):
                lane.target.fill(data)
            lane.hash([memoryview(data)], len(data))
            if not lane.decoder.payload_left:
                self._payload_done(lane)
                return True
            return False
        frame = lane.decoder.next_frame()
        if frame is None:
            return False
        self._on_frame(lane, frame, now)
        return True

    def _on_frame(self, lane: Lane, frame: Frame, now: float) -> None:
        if isinstance(frame, Ping):
            lane.on_ping(frame)
            self.wants_send = True
        elif isinstance(frame, Pong):
            lane.on_pong(frame, now)
        else:
            if isinstance(frame, Hello | Welcome):
                lane.channel.check_node_id(frame.node_id)
            self._owner.receive(lane.number, frame, now)
            lane.is_greeted = True
            if isinstance(frame, Chunk):
                views = self._owner.target(lane.number)
                lane.encoded = None
                if frame.encoding and views is not None:
                    payload = np.empty(frame.payload_bytes, np.uint8).data
                    lane.encoded = EncodedChunk(frame, payload, views)
                    views = [payload]
                lane.target = None if views is None else Segment(views)
                has_digest = views is not None and self._owner.wants_digest(lane.number)
                lane.hasher = xxhash.xxh3_64() if has_digest else None
            else:
                self.wants_send = True
                self.has_ended |= not isinstance(frame, Ack)
            self._close_dead()

    def _payload_done(self, lane: Lane) -> None:
        if lane.target is not None and lane.encoded is not None:
            lane.undecoded = lane.encoded
        else:
            self._finish(lane)

    def _finish(self, lane: Lane) -> None:
        lane.target = lane.encoded = None
        self.num_unanswered += 1
        digest = None if lane.hasher is None else lane.hasher.intdigest()
        lane.hasher = None
        self._owner.payload_done(lane.number, digest)
