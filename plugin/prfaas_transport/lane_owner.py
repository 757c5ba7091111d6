"""What the lanes of a node ask of it."""

from collections.abc import Mapping
from typing import Any, Protocol

from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.signals import LaneSample
from prfaas.wire import Chunk, Frame


class LaneOwner(Protocol):
    """All calls come from I/O threads, one at a time: under the node's lock, but for `deliver`."""

    def accepted(self, lane: int) -> None:
        """A connection came in."""

    def closed(self, lane: int, reason: str, now: float) -> None:
        """A lane is gone; lanes that the machine gave up itself are told too."""

    def receive(self, lane: int, frame: Frame, now: float) -> None:
        """Take a frame. Raises: ProtocolError."""

    def next_frame(self, lane: int) -> Frame | ChunkOut | None:
        """Return what the lane is to send next."""

    def payload(self, chunk: ChunkOut) -> list[memoryview]:
        """Return the payload of a chunk to send."""

    def target(self, lane: int) -> list[memoryview] | None:
        """Return where the payload of the chunk just received goes; None discards it."""

    def is_target_live(self, lane: int) -> bool:
        """Say whether that may still be written."""

    def wants_encoding(self, lane: int, chunk: ChunkOut) -> bool:
        """Say whether a chunk just taken for the lane is to be encoded."""

    def encoding_width(self, lane: int, chunk: Chunk) -> int | None:
        """Return the width of elements to encode a chunk by, 0: the best, None: it stays plain."""

    def encoded(self, lane: int, chunk: Chunk, cpu_s: float) -> None:
        """A chunk that was to be encoded goes out with this frame; so much it cost."""

    def is_intact(self, lane: int, digest: int | None) -> bool:
        """Say whether the payload that was read has its digest, as far as that is checked."""

    def decoded(self, chunk: Chunk, cpu_s: float) -> None:
        """A payload was decoded; `payload_done` follows."""

    def wants_digest(self, lane: int) -> bool:
        """Say whether the chunks to send, or the chunk just received, are to be hashed."""

    def payload_done(self, lane: int, digest: int | None) -> None:
        """The payload was read to its end. Raises: ProtocolError."""

    def sampled(self, sample: LaneSample, bytes_received: int) -> None:
        """The kernel was asked how a lane fares, which brought so many bytes since it opened."""

    def congestion_control(self, lane: int) -> str:
        """Return what the lane's socket is to use from now on; empty leaves it."""

    def checked(
        self, stalled: Mapping[int, float], dialled: Mapping[int, float], now: float
    ) -> None:
        """All lanes were looked at: the round trips of those that stall, and for how long others
        have waited for their connection, in seconds."""

    def outdated(self, lane: int, reason: str) -> None:
        """A lane is to be dialled anew."""

    def on_timer(self, now: float) -> None:
        """Act on deadlines and dials that are due."""

    def next_timer(self) -> float | None:
        """Return when `on_timer` has something to do."""

    def take_events(self) -> list[Any]:
        """Return and clear events."""

    def take_dead_lanes(self) -> list[tuple[int, str]]:
        """Return and clear lanes to close."""

    def deliver(self, event: Any) -> None:
        """Hand an event to the user, outside the lock."""
