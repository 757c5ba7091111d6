"""One sender and one peer over a link of virtual time: who gets the bytes, and when.

The link takes one chunk after another at `bytes_per_s` from a queue of at most `queue_bytes` (the
sockets' buffers), and an ACK comes back `rtt_s` after the last byte left.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from prfaas.transfer import Entry, Group, Layout, RoomSent, Sender
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
from prfaas.transfer.signals import LaneSample
from prfaas.wire import Ack, Done, Fin, Hello, Open, Priority

ITEM_BYTES = 64 << 10
LAYOUT = Layout((Group("kv", (Entry(ITEM_BYTES, 1 << 22),)),))
LANES = 4
SAMPLE_S = 0.2


@dataclass
class LinkSim:
    bytes_per_s: float = 125e6
    rtt_s: float = 0.02
    queue_bytes: int = 4 << 20
    limits: SendLimits = field(default_factory=lambda: SendLimits(max_queued_chunks=1 << 20))
    is_sampled: bool = True
    now: float = 1.0
    sent_bytes: Counter[int] = field(default_factory=Counter)
    done_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sender = Sender(LAYOUT, node_id="p", session=1, limits=self.limits)
        for lane in range(LANES):
            self.sender.lane_opened(lane)
            hello = Hello("d", 1, lane, LANES, LAYOUT.digest(), LAYOUT.wire_groups())
            self.sender.receive(lane, hello, self.now)
        self._free_s = self.now
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._num_events = 0
        self._left: Counter[int] = Counter()
        self._finished: set[int] = set()
        self._next_lane = 0
        self._acked_bytes = 0
        self._sampled_bytes = 0
        self._busy_s = 0.0
        if self.is_sampled:
            self.at(self.now, self._sample)

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (when_s, self._num_events, what))

    def start(self, room: int, num_bytes: int, priority: Priority = Priority.FOREGROUND) -> None:
        """Open the room and submit all of it."""
        items = max(1, num_bytes // ITEM_BYTES)
        opened = Open(room, 1, 10_000_000, 0, (items,), priority)
        self.sender.receive(0, opened, self.now)
        self.sender.submit(room, group="kv", start=0, items=np.arange(items))
        self.sender.finish(room, {"kv": items})
        self._left[room] = items

    def run(self, until_s: float) -> None:
        self._pull()
        while self._events and self._events[0][0] <= until_s:
            self.now, _, what = heapq.heappop(self._events)
            what()
            self._pull()
            timer = self.sender.next_timer()
            if timer is not None and timer <= self.now + 1.0:
                self.at(max(timer, self.now), self._on_timer)
            self._note_ends()
        self.now = until_s

    def _on_timer(self) -> None:
        timer = self.sender.next_timer()
        if timer is not None and timer <= self.now:
            self.sender.on_timer(self.now)

    def _pull(self) -> None:
        while (self._free_s - self.now) * self.bytes_per_s < self.queue_bytes:
            for _ in range(LANES):
                self._next_lane = (self._next_lane + 1) % LANES
                out = self.sender.next_frame(self._next_lane)
                if out is not None:
                    break
            if isinstance(out, ChunkOut):
                self._carry(self._next_lane, out)
            elif isinstance(out, Fin):
                self._finished.add(out.room)
            elif out is None:
                return

    def _carry(self, lane: int, chunk: ChunkOut) -> None:
        frame = chunk.frame
        self.sent_bytes[frame.room] += frame.payload_bytes
        self._free_s = max(self._free_s, self.now) + frame.payload_bytes / self.bytes_per_s

        def arrive() -> None:
            ack = Ack(frame.room, frame.attempt, (frame.chunk,))
            self.sender.receive(lane, ack, self.now)
            self._left[frame.room] -= frame.count
            self._acked_bytes += frame.payload_bytes
            if not self._left[frame.room]:
                self.sender.receive(lane, Done(frame.room, frame.attempt), self.now)

        self.at(self._free_s, lambda: None)  # there is room for more
        self.at(self._free_s + self.rtt_s, arrive)

    def _sample(self) -> None:
        """What TCP would say, were all of it one connection."""
        is_busy = self._acked_bytes > self._sampled_bytes
        self._busy_s += SAMPLE_S if is_busy else 0.0
        sample = LaneSample(
            lane=0,
            at_s=self.now,
            rtt_s=self.rtt_s + max(0.0, self._free_s - self.now),
            rttvar_s=0.0,
            bytes_acked=self._acked_bytes,
            bytes_retrans=0,
            delivery_bytes_per_s=self.bytes_per_s if is_busy else 0.0,
            busy_s=self._busy_s,
            rwnd_limited_s=0.0,
            sndbuf_limited_s=0.0,
            unsent_bytes=0,
        )
        self._sampled_bytes = self._acked_bytes
        self.sender.sampled(sample)
        self.at(self.now + SAMPLE_S, self._sample)

    def _note_ends(self) -> None:
        for event in self.sender.take_events():
            if isinstance(event, RoomSent):
                self.done_s[event.room] = self.now
