"""The transport node of a prefill worker."""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from prfaas.transfer.compression import CompressionLimits
from prfaas.transfer.events import SendEvent
from prfaas.transfer.layout import Items, Layout
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import Sender, SendLimits
from prfaas.transfer.signals import LaneSample
from prfaas.wire import Chunk, Frame, Welcome
from prfaas_transport import sockets
from prfaas_transport.chunk_size import chunk_size
from prfaas_transport.config import TransportConfig
from prfaas_transport.loop import LaneLoop
from prfaas_transport.memory import TransferMemory
from prfaas_transport.security import sender_guard
from prfaas_transport.warm_up import WarmUp

log = logging.getLogger("prfaas.transport")


class SendNode:
    """Listens for receivers, and sends the items of the rooms that they open.

    All methods may be called from any thread and from `on_event`; none waits for the network.
    `on_event` is called on the I/O thread. The memory's items of a room may be changed as soon as
    RoomSent or RoomFailed was delivered or `abort()` returned. `node_id` names this process.

    Raises: OSError if it cannot listen, ConfigError if the machine cannot do as configured.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        memory: TransferMemory,
        node_id: str,
        host: str,
        port: int = 0,
        config: TransportConfig,
        on_event: Callable[[SendEvent], None],
    ) -> None:
        sockets.check(config)
        limits = SendLimits(
            chunk_bytes=config.chunk_bytes or chunk_size(0.0),
            max_queued_chunks=config.max_queued_chunks,
            room_timeout_s=config.room_timeout_s,
            compression=CompressionLimits(threads=config.codec_threads),
        )
        session = secrets.randbits(64)
        guard = sender_guard(config.secret, layout, node_id=node_id, session=session)
        self._machine = Sender(
            layout,
            node_id=node_id,
            session=session,
            limits=limits,
            features=config.features,
            guard=guard,
        )
        listener = sockets.listen(host, port)
        self._address: tuple[str, int] = listener.getsockname()[:2]
        owner = _Owner(
            self._machine,
            memory,
            _blank_groups(layout, config),
            WarmUp(layout, config.warm_bytes),
            config,
            on_event,
        )
        name = f"prfaas-send-{node_id}"
        self._loop = LaneLoop(owner, config, name=name, listener=listener)
        owner.loop = self._loop
        self._loop.start()

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) that this node listens on."""
        return self._address

    def submit(
        self,
        room: int,
        *,
        group: str,
        start: int,
        items: Items,
        entries: range | None = None,
        ready: int | None = None,
    ) -> None:
        """Queue `items[i]` for position `start + i` of the grant, for `entries` (all) of the group.

        It goes to every peer that opened the room, also to those that open it later. With a `ready`
        token nothing is read before `mark_ready` named it.
        Raises: TransferError if the room is unknown, failed or finished, if items, positions or
            entries are out of range, or if the queue is full (`queue_full`); then nothing was
            queued.
        """
        with self._loop.call():
            self._machine.submit(
                room, group=group, start=start, items=items, entries=entries, ready=ready
            )

    def mark_ready(self, room: int, token: int) -> None:
        """Say that what was or will be submitted with this token may be read and sent."""
        with self._loop.call(may_be_closed=True):
            self._machine.mark_ready(room, token)

    def finish(self, room: int, totals: Mapping[str, int]) -> None:
        """Say that no more items come; RoomSent follows when every peer has said DONE.

        Raises: TransferError if the room is unknown or failed, or if `totals` (items per group) is
            not what was submitted and granted; then the room has failed.
        """
        with self._loop.call():
            self._machine.finish(room, totals)

    def abort(self, room: int, reason: str, detail: str = "") -> None:
        """Fail the room here and at its peers; on return its memory is no longer read.

        A room that no peer has opened yet will be refused when one does.
        """
        with self._loop.call(may_be_closed=True):
            self._machine.abort(room, reason, detail, monotonic())

    def forget(self, room: int) -> None:
        """Drop all memory of a concluded room; a failed one stays closed to late openers."""
        with self._loop.call(may_be_closed=True):
            self._machine.forget(room, monotonic())

    def stats(self) -> dict[str, Any]:
        """Return JSON-able counters; names end in `_total` where they only grow."""
        with self._loop.lock:  # changes nothing: the I/O threads need not wake
            return {**self._machine.describe(), "lanes": self._loop.describe_lanes()}

    def close(self) -> None:
        """Close all lanes and stop; peers see their lanes end. No event comes after this."""
        self._loop.close()


class _Owner:
    """Joins the loop to the machine and the memory."""

    loop: LaneLoop

    def __init__(
        self,
        machine: Sender,
        memory: TransferMemory,
        blank_groups: frozenset[int],
        warm_up: WarmUp,
        config: TransportConfig,
        on_event: Callable[[SendEvent], None],
    ) -> None:
        self._memory = memory
        self._blank_groups = blank_groups
        self._warm_up = warm_up
        self._has_auto_chunks = not config.chunk_bytes
        self._better_control = sockets.better_control(config)
        self._machine = machine
        self.accepted = machine.lane_opened
        self.receive = machine.receive
        self.on_timer = machine.on_timer
        self.next_timer = machine.next_timer
        self.take_events = machine.take_events
        self.wants_digest = machine.wants_digest
        self.encoding_width = machine.encoding_width
        self.encoded = machine.encoded
        self.take_dead_lanes = machine.take_dead_lanes
        self.deliver = on_event

    def closed(self, lane: int, reason: str, now: float) -> None:  # noqa: ARG002 - LaneOwner
        self._warm_up.stop(lane)
        self._machine.lane_closed(lane, reason)

    def sampled(self, sample: LaneSample, bytes_received: int) -> None:  # noqa: ARG002 - LaneOwner
        self._machine.sampled(sample)
        if self._has_auto_chunks:
            limits = self._machine.limits
            rates = [s.available_bytes_per_s for s in self._machine.signals().values()]
            chunk_bytes = chunk_size(max(rates, default=0.0))
            if chunk_bytes != limits.chunk_bytes:
                self._machine.limits = replace(limits, chunk_bytes=chunk_bytes)

    def next_frame(self, lane: int) -> Frame | ChunkOut | None:
        now = monotonic()
        self._machine.advance(now)
        frame = self._machine.next_frame(lane)
        if isinstance(frame, Welcome):
            self._warm_up.start(lane, now)
        return self._warm_up.next_piece(lane, now) if frame is None else frame

    def wants_encoding(self, lane: int, chunk: ChunkOut) -> bool:
        is_ours = chunk.leg is self._warm_up.leg
        return not is_ours and self._machine.wants_encoding(lane, chunk)

    def congestion_control(self, lane: int) -> str:
        is_lossy = self._better_control and self._machine.has_random_loss(lane)
        return self._better_control if is_lossy else ""

    def checked(
        self, stalled: Mapping[int, float], dialled: Mapping[int, float], now: float
    ) -> None:
        """A sender does not dial."""

    def outdated(self, lane: int, reason: str) -> None:
        raise AssertionError(f"a sender does not dial (lane {lane}: {reason})")

    def payload(self, chunk: ChunkOut) -> list[memoryview]:
        frame = chunk.frame
        if chunk.leg is self._warm_up.leg:
            return self._warm_up.payload
        if frame.group in self._blank_groups:
            return [memoryview(bytes(frame.payload_bytes))]
        return self._memory.source(frame.group, frame.entry, chunk.items)

    def target(self, lane: int) -> list[memoryview] | None:
        raise AssertionError(f"a sender receives no chunks (lane {lane})")

    def is_intact(self, lane: int, digest: int | None) -> bool:  # noqa: ARG002 - LaneOwner
        raise AssertionError(f"a sender receives no chunks (lane {lane})")

    def decoded(self, chunk: Chunk, cpu_s: float) -> None:  # noqa: ARG002 - LaneOwner
        raise AssertionError(f"a sender receives no chunks ({chunk})")

    def is_target_live(self, lane: int) -> bool:
        raise AssertionError(f"a sender receives no chunks (lane {lane})")

    def payload_done(self, lane: int, digest: int | None) -> None:  # noqa: ARG002 - LaneOwner
        raise AssertionError(f"a sender receives no chunks (lane {lane})")


def _blank_groups(layout: Layout, config: TransportConfig) -> frozenset[int]:
    prefixes = tuple(config.blank_groups)
    names = [group.name for group in layout.groups if group.name.startswith(prefixes)]
    if prefixes:
        log.warning("FAULT INJECTION: the payload of %s goes out as zero bytes", names)
    return frozenset(layout.index(name) for name in names)
