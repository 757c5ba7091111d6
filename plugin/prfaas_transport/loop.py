"""The I/O thread of a node: one epoll over its lanes, one lock around its machine."""

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer.reasons import Reason
from prfaas.transfer.send_room import ChunkOut
from prfaas.wire import Chunk, Frame, Ping, Pong
from prfaas_transport import sockets
from prfaas_transport.buffers import MAX_IOV, Segment
from prfaas_transport.config import TransportConfig
from prfaas_transport.fair_lock import FairLock
from prfaas_transport.lane import Lane

log = logging.getLogger("prfaas.transport")

FILL_BYTES = 256 << 10
SCRATCH_BYTES = 64 << 10
TRAILER_BYTES = 4 << 10
READS_PER_TURN = 4
MAX_LANES = 4096
ACCEPT_PAUSE_S = 0.5


class LaneOwner(Protocol):
    """What the loop asks of its node; all calls on the I/O thread, under the lock but `deliver`."""

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

    def payload_done(self, lane: int) -> None:
        """The payload was read to its end. Raises: ProtocolError."""

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


class LaneLoop:
    """Runs the lanes of a node on one daemon thread until `close()`."""

    def __init__(
        self,
        owner: LaneOwner,
        config: TransportConfig,
        *,
        name: str,
        listener: socket.socket | None = None,
    ) -> None:
        self._owner = owner
        self._config = config
        self._listener = listener
        self._accept_s = 0.0
        self._lock = FairLock()
        self._lanes: dict[int, Lane] = {}
        self._by_fd: dict[int, Lane] = {}
        self._num_lanes = 0
        self._events: deque[Any] = deque()
        self._stopping = False
        self._check_s = 0.0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._waste = memoryview(bytearray(FILL_BYTES))
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        if listener is not None:
            self._epoll.register(listener.fileno(), select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the I/O thread."""
        self._thread.start()

    @contextlib.contextmanager
    def call(self, *, may_be_closed: bool = False) -> Iterator[None]:
        """Hold the lock for a call from outside, then have the I/O thread look for work.

        Raises: TransferError if the node is closed, unless `may_be_closed`.
        """
        with self._lock:
            if self._stopping and not may_be_closed:
                raise TransferError(Reason.CLOSED, "the transport node is closed")
            try:
                yield
            finally:
                self._settle()
                if not self._stopping:
                    os.eventfd_write(self._wake_fd, 1)

    @contextlib.contextmanager
    def _section(self) -> Iterator[None]:
        """Hold the lock; on leaving, close dead lanes and let go of ended rooms' memory."""
        with self._lock:
            try:
                yield
            finally:
                self._settle()

    def close(self) -> None:
        """Stop the thread and close all sockets; from a callback, they close after it returned."""
        with self._lock:
            if self._stopping:
                return
            os.eventfd_write(self._wake_fd, 1)
            self._stopping = True
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def add_dialled(self, lane: int, sock: socket.socket, now: float) -> None:
        """Take over a socket whose connection is under way. Under the lock."""
        channel = self._config.channel_factory.wrap(sock, server_side=False)
        period_s = self._config.liveness_s
        self._add(Lane(lane, sock, channel, is_connecting=True, period_s=period_s, now=now))

    def new_lane_id(self) -> int:
        """Return a lane number that this node has not used. Under the lock."""
        self._num_lanes += 1
        return self._num_lanes

    def describe_lanes(self) -> list[dict[str, Any]]:
        """Return JSON-able counters per lane. Under the lock."""
        return [
            {
                "lane": lane.number,
                "bytes_sent_total": lane.bytes_sent,
                "bytes_received_total": lane.bytes_received,
                "queued_bytes": lane.queued_bytes,
                "rtt_s": lane.rtt_s,
            }
            for lane in self._lanes.values()
        ]

    # The thread

    def _run(self) -> None:
        is_busy = False
        while not self._stopping:
            try:
                is_busy = self._turn(is_busy)
            except Exception:
                # Outermost frame of the thread: a bug in one turn must not end all transfers.
                log.exception("I/O thread: turn failed")
                time.sleep(0.05)
        self._shut()

    def _turn(self, is_busy: bool) -> bool:
        """Do one round of reads, timers and writes; return whether more can be written."""
        for fd, mask in self._epoll.poll(0 if is_busy else self._timeout_s()):
            if fd == self._wake_fd:
                os.eventfd_read(self._wake_fd)
            elif self._listener is not None and fd == self._listener.fileno():
                self._accept()
            elif (lane := self._by_fd.get(fd)) is not None:
                self._on_ready(lane, mask)
        now = time.monotonic()
        if now >= self._due_s():
            with self._section():
                self._on_timer(now)
        is_busy = False
        for lane in list(self._lanes.values()):
            if not lane.is_blocked and not lane.is_closed:
                is_busy = self._write(lane) or is_busy
        self._deliver()
        return is_busy

    def _due_s(self) -> float:
        timer = self._owner.next_timer()
        return self._check_s if timer is None else min(timer, self._check_s)

    def _timeout_s(self) -> float:
        return max(0.0, min(self._due_s() - time.monotonic(), 60.0))

    def _deliver(self) -> None:
        while self._events and not self._stopping:
            try:
                self._owner.deliver(self._events.popleft())
            except Exception:
                # A callback's bug is the caller's; it must not end the I/O thread.
                log.exception("transport callback failed")

    def _on_timer(self, now: float) -> None:
        self._owner.on_timer(now)
        if now < self._check_s:
            return
        self._check_s = now + min(self._config.liveness_s, self._config.connect_timeout_s) / 4
        for lane in list(self._lanes.values()):
            if not lane.is_greeted and now - lane.opened_s >= self._config.connect_timeout_s:
                self._close(lane, "handshake_timeout")
            elif lane.is_connecting:
                continue
            elif lane.liveness.is_dead(now):
                self._close(lane, "the peer is silent")
            elif lane.is_greeted and lane.liveness.wants_ping(now):
                lane.ping(now)
        if self._accept_s and now >= self._accept_s and self._listener is not None:
            self._accept_s = 0.0
            self._epoll.modify(self._listener.fileno(), select.EPOLLIN)

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("accept failed: %s", error)
                self._accept_s = time.monotonic() + ACCEPT_PAUSE_S
                self._epoll.modify(self._listener.fileno(), 0)
                return
            with self._section():
                self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        if len(self._lanes) >= MAX_LANES:
            log.warning("lane refused: %d lanes are open", len(self._lanes))
            sock.close()
            return
        try:
            sock.setblocking(False)
            sockets.tune(sock, self._config.liveness_s)
            channel = self._config.channel_factory.wrap(sock, server_side=True)
        except OSError:
            sock.close()
            return
        period_s, now = self._config.liveness_s, time.monotonic()
        number = self.new_lane_id()
        lane = Lane(number, sock, channel, is_connecting=False, period_s=period_s, now=now)
        self._owner.accepted(lane.number)
        self._add(lane)

    # Lanes

    def _add(self, lane: Lane) -> None:
        self._lanes[lane.number] = self._by_fd[lane.fd] = lane
        self._epoll.register(lane.fd, self._mask(lane))

    def _mask(self, lane: Lane) -> int:
        if lane.is_connecting:
            return select.EPOLLOUT
        return select.EPOLLIN | (select.EPOLLOUT if lane.is_blocked else 0)

    def _close(self, lane: Lane, reason: str) -> None:
        if lane.is_closed:
            return
        lane.is_closed = True
        del self._lanes[lane.number]
        del self._by_fd[lane.fd]
        self._epoll.unregister(lane.fd)
        lane.channel.close()
        log.info("lane %d closed: %s", lane.number, reason)
        self._owner.closed(lane.number, reason, time.monotonic())

    def _settle(self) -> None:
        while dead := self._owner.take_dead_lanes():
            for number, reason in dead:
                if (lane := self._lanes.get(number)) is not None:
                    self._close(lane, reason)
        for lane in self._lanes.values():
            if lane.queued_bytes:
                lane.detach_ended()
        self._events.extend(self._owner.take_events())

    @contextlib.contextmanager
    def _lane_section(self, lane: Lane) -> Iterator[None]:
        """Hold the lock; an error closes the lane and nothing else."""
        with self._section():
            try:
                yield
            except ProtocolError as error:
                log.warning("lane %d: protocol error: %s", lane.number, error)
                self._close(lane, f"protocol_error: {error}")
            except OSError as error:
                self._close(lane, str(error))
            except Exception as error:
                # A bug met on one lane must not take the others along.
                log.exception("lane %d: internal error", lane.number)
                self._close(lane, f"internal error: {error!r}")

    def _on_ready(self, lane: Lane, mask: int) -> None:
        if mask & ~select.EPOLLIN:
            with self._lane_section(lane):
                self._on_writable(lane)
        if mask & ~select.EPOLLOUT:
            for _ in range(READS_PER_TURN):
                if lane.is_closed or not self._read(lane):
                    return

    def _on_writable(self, lane: Lane) -> None:
        if lane.is_connecting:
            code = lane.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            lane.is_connecting = False
        if lane.is_blocked:
            lane.is_blocked = False
            self._epoll.modify(lane.fd, self._mask(lane))

    def _write(self, lane: Lane) -> bool:
        """Fill the lane and send once; return whether it moved and may move more."""
        with self._lane_section(lane):
            if lane.is_closed:
                return False
            while lane.queued_bytes < FILL_BYTES and not lane.is_closing:
                frame = self._owner.next_frame(lane.number)
                if frame is None:
                    break
                if isinstance(frame, ChunkOut):
                    lane.put_chunk(frame, self._owner.payload(frame))
                else:
                    lane.put(frame)
            num_bytes = lane.send(time.monotonic()) if lane.queued_bytes else 0
            if lane.is_closing and not lane.queued_bytes:
                self._close(lane, "refused")
            elif lane.is_blocked:
                self._epoll.modify(lane.fd, self._mask(lane))
            return num_bytes > 0
        return False

    def _read(self, lane: Lane) -> bool:
        """Receive once; return whether more may be there."""
        with self._lane_section(lane):
            if lane.is_closed:
                return False
            views, payload_bytes = self._read_views(lane)
            try:
                num_bytes = lane.channel.receive_into(views)
            except BlockingIOError:
                return False
            if not num_bytes:
                self._close(lane, "closed by the peer")
                return False
            now = time.monotonic()
            lane.liveness.heard(now)
            lane.bytes_received += num_bytes
            self._on_bytes(lane, num_bytes, payload_bytes, now)
            return num_bytes == sum(len(view) for view in views)
        return False

    def _read_views(self, lane: Lane) -> tuple[list[memoryview], int]:
        """Return the views to receive into, and how many of their bytes are payload."""
        left = lane.decoder.payload_left
        if not left:
            return [self._scratch], 0
        if lane.target is not None and not self._owner.is_target_live(lane.number):
            lane.target = None
        views = [self._waste[:left]] if lane.target is None else lane.target.head(MAX_IOV)
        payload_bytes = sum(len(view) for view in views)
        if payload_bytes == left:
            views = [*views, self._scratch[:TRAILER_BYTES]]
        return views, payload_bytes

    def _on_bytes(self, lane: Lane, num_bytes: int, payload_bytes: int, now: float) -> None:
        taken = min(num_bytes, payload_bytes)
        if taken:
            lane.decoder.skip_payload(taken)
            if lane.target is not None:
                lane.target.advance(taken)
            if not lane.decoder.payload_left:
                self._payload_done(lane)
        if num_bytes > taken:
            lane.decoder.receive(self._scratch[: num_bytes - taken])
        while not lane.is_closed and self._step(lane, now):
            pass

    def _step(self, lane: Lane, now: float) -> bool:
        """Act on the next buffered frame or payload; return whether there was one."""
        if lane.decoder.payload_left:
            data = lane.decoder.take_payload()
            if lane.target is not None and self._owner.is_target_live(lane.number):
                lane.target.fill(data)
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
        elif isinstance(frame, Pong):
            lane.on_pong(frame, now)
        else:
            self._owner.receive(lane.number, frame, now)
            lane.is_greeted = True
            if isinstance(frame, Chunk):
                views = self._owner.target(lane.number)
                lane.target = None if views is None else Segment(views)
            for number, reason in self._owner.take_dead_lanes():
                if (dead := self._lanes.get(number)) is not None:
                    self._close(dead, reason)

    def _payload_done(self, lane: Lane) -> None:
        lane.target = None
        self._owner.payload_done(lane.number)

    def _shut(self) -> None:
        with self._lock:
            for lane in list(self._lanes.values()):
                lane.channel.close()
            self._lanes.clear()
            self._by_fd.clear()
            if self._listener is not None:
                self._listener.close()
            self._epoll.close()
            os.close(self._wake_fd)
