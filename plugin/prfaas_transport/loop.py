"""The lanes of a node: one lock around its machine, I/O threads that share the lanes."""

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer.reasons import Reason
from prfaas_transport import sockets
from prfaas_transport.config import TransportConfig
from prfaas_transport.io_thread import IoThread
from prfaas_transport.lane import Lane
from prfaas_transport.lane_owner import LaneOwner
from prfaas_transport.listener import Listener

log = logging.getLogger("prfaas.transport")

MAX_LANES = 4096
MAX_STRANGERS = 256
"""Accepted connections that have not said who they are; one more pushes the oldest out."""
CHECKS_PER_PERIOD = 8
LONGEST_CHECK_S = 0.1


class LaneLoop:
    """Runs the lanes of a node on daemon threads until `close()`."""

    def __init__(
        self,
        owner: LaneOwner,
        config: TransportConfig,
        *,
        name: str,
        listener: socket.socket | None = None,
    ) -> None:
        self.lock = threading.Lock()
        self.is_stopping = False
        self._owner = owner
        self._config = config
        self._lanes: dict[int, Lane] = {}
        self._strangers: dict[int, Lane] = {}
        self._num_lanes = 0
        self._events: deque[Any] = deque()
        self._delivering = threading.Lock()
        shortest_s = min(config.liveness_s, config.connect_timeout_s)
        self._check_period_s = min(LONGEST_CHECK_S, shortest_s / CHECKS_PER_PERIOD)
        self._check_s = 0.0
        first: IoThread = _FirstThread(self, owner, f"{name}-0", listener)
        others = [IoThread(self, owner, f"{name}-{i}") for i in range(1, config.io_threads)]
        self._threads = [first, *others]

    def start(self) -> None:
        """Start the I/O threads."""
        for thread in self._threads:
            thread.thread.start()

    @contextlib.contextmanager
    def call(self, *, may_be_closed: bool = False) -> Iterator[None]:
        """Hold the lock for a call from outside, then have the I/O threads look for work.

        Raises: TransferError if the node is closed, unless `may_be_closed`.
        """
        with self.lock:
            if self.is_stopping and not may_be_closed:
                raise TransferError(Reason.CLOSED, "the transport node is closed")
            try:
                yield
            finally:
                self.settle(has_ended=True)

    def close(self) -> None:
        """Stop the threads and close all sockets; from a callback, they end after it returned."""
        with self.lock:
            self.is_stopping = True
            for thread in self._threads:
                thread.wake()
        if not any(t.thread is threading.current_thread() for t in self._threads):
            for thread in self._threads:
                thread.thread.join()

    def add_dialled(self, lane: int, sock: socket.socket, now: float) -> None:
        """Take over a socket whose connection is under way. Under the lock. Raises: OSError."""
        self._add(lane, sock, now, is_connecting=True)

    def new_lane_id(self) -> int:
        """Return a lane number that this node has not used. Under the lock."""
        self._num_lanes += 1
        return self._num_lanes

    def describe_lanes(self) -> list[dict[str, Any]]:
        """Return JSON-able counters per lane. Under the lock."""
        return [lane.describe() for lane in self._lanes.values() if not lane.is_closed]

    # Called by the I/O threads

    def settle(self, *, has_ended: bool) -> None:
        """Close dead lanes; if a room may have ended, let go of its memory. Under the lock.

        What ends a room is a call from outside, a timer, a lane's end, a frame that is neither
        CHUNK nor ACK, or else shows in an event.
        """
        while dead := self._owner.take_dead_lanes():
            has_ended = True
            for number, reason in dead:
                if (lane := self._lanes.get(number)) is not None:
                    self.close_lane(lane, reason)
        events = self._owner.take_events()
        self._events.extend(events)
        if events or has_ended:
            self._release()
            for thread in self._threads:
                thread.wake()
        elif self.due_s() < self._threads[0].waits_until_s:
            self._threads[0].wake()

    def close_lane(self, lane: Lane, reason: str) -> None:
        """Close a lane, unless it is. Under the lock; `settle` must follow."""
        if lane.is_closed:
            return
        lane.is_closed = True
        del self._lanes[lane.number]
        self._strangers.pop(lane.number, None)
        lane.thread.remove(lane)
        log.info("lane %d closed: %s", lane.number, reason)
        self._owner.closed(lane.number, reason, time.monotonic())

    def fail_lane(self, lane: Lane, error: Exception) -> None:
        """Close a lane for an error. Under the lock; `settle` must follow."""
        if isinstance(error, ProtocolError):
            log.warning("lane %d: protocol error: %s", lane.number, error)
            self.close_lane(lane, f"protocol_error: {error}")
        elif isinstance(error, OSError):
            self.close_lane(lane, str(error))
        else:
            log.error("lane %d: internal error", lane.number, exc_info=error)
            self.close_lane(lane, f"internal error: {error!r}")

    def deliver(self) -> None:
        """Hand out events, in order, on whichever thread comes first. Not under the lock."""
        while self._events and not self.is_stopping:
            if not self._delivering.acquire(blocking=False):
                return
            try:
                self._deliver()
            finally:
                self._delivering.release()

    def due_s(self) -> float:
        """Return when `on_timer` has something to do."""
        timer = self._owner.next_timer()
        return self._check_s if timer is None else min(timer, self._check_s)

    def on_timer(self, now: float) -> None:
        """Act on what is due."""
        with self.lock:
            if self.is_stopping:
                return
            try:
                self._owner.on_timer(now)
                if now >= self._check_s:
                    self._check_lanes(now)
            finally:
                self.settle(has_ended=True)

    def take(self, sock: socket.socket) -> None:
        """Take over a connection that came in."""
        with self.lock:
            if self.is_stopping or len(self._lanes) >= MAX_LANES:
                log.warning("lane refused: %d lanes are open", len(self._lanes))
                sock.close()
                return
            number = self.new_lane_id()
            try:
                sock.setblocking(False)
                sockets.tune(sock, self._config)
                self._add(number, sock, time.monotonic(), is_connecting=False)
            except OSError as error:
                log.warning("lane refused: %s", error)
                sock.close()
                return
            self._owner.accepted(number)
            self._admit(self._lanes[number])

    # Under the lock

    def _admit(self, lane: Lane) -> None:
        """Push the oldest stranger out if there are too many: who does say HELLO does so soon."""
        self._strangers[lane.number] = lane
        if len(self._strangers) <= MAX_STRANGERS:
            return
        for number, other in list(self._strangers.items()):
            if other.is_greeted or other.is_closed:
                del self._strangers[number]
        if len(self._strangers) > MAX_STRANGERS:
            self.close_lane(next(iter(self._strangers.values())), "too many that do not say HELLO")
            self.settle(has_ended=False)

    def _add(self, number: int, sock: socket.socket, now: float, *, is_connecting: bool) -> None:
        channel = self._config.channel_factory.wrap(sock, server_side=not is_connecting)
        thread = min(self._threads, key=lambda thread: len(thread.lanes))
        period_s = self._config.liveness_s
        lane = Lane(
            number, sock, channel, thread, is_connecting=is_connecting, period_s=period_s, now=now
        )
        thread.add(lane)
        self._lanes[number] = lane

    def _check_lanes(self, now: float) -> None:
        was_late = now - self._check_s > self._config.liveness_s / 2
        self._check_s = now + self._check_period_s
        if was_late:
            return  # this process stood still: what it has not heard may be waiting to be read
        for lane in list(self._lanes.values()):
            if not lane.is_greeted and now - lane.opened_s >= self._config.connect_timeout_s:
                self.close_lane(lane, "handshake_timeout")
            elif not lane.is_ready:
                continue
            elif lane.is_dead(now, within_s=self._check_period_s):
                self.close_lane(lane, "the peer is silent")
            elif lane.is_greeted:
                self._tend(lane, now)
        lanes = list(self._lanes.values())
        stalled = {each.number: each.rtt_s for each in lanes if each.is_stalled(now)}
        dialled = {lane.number: now - lane.opened_s for lane in lanes if lane.is_connecting}
        self._owner.checked(stalled, dialled, now)

    def _tend(self, lane: Lane, now: float) -> None:
        if lane.liveness.wants_ping(now):
            lane.ping(now)
        if reason := lane.channel.outdated(now):
            self._owner.outdated(lane.number, reason)

    def _release(self) -> None:
        """Let go of the memory of ended rooms: wait for calls that use it, drop what is queued.

        The calls do not block and their threads do not need the lock to end them.
        """
        for thread in self._threads:
            if thread.uses_ended():
                with thread.in_call:
                    pass
        now = time.monotonic()
        for lane in self._lanes.values():
            if lane.queued_bytes:
                lane.account(now)
                lane.detach_ended()

    def _deliver(self) -> None:
        while self._events and not self.is_stopping:
            try:
                self._owner.deliver(self._events.popleft())
            except Exception:
                # A callback's bug is the caller's; it must not end the I/O thread.
                log.exception("transport callback failed")


class _FirstThread(IoThread):
    """The thread that also accepts, dials and keeps time."""

    def __init__(
        self, node: LaneLoop, owner: LaneOwner, name: str, listener: socket.socket | None
    ) -> None:
        super().__init__(node, owner, name)
        self._loop = node
        self._listener = None if listener is None else Listener(listener, self._epoll)

    def chores(self) -> None:
        now = time.monotonic()
        if now >= self._loop.due_s():
            self._loop.on_timer(now)
        if self._listener is not None:
            self._listener.resume(now)

    def on_other(self, fd: int) -> None:
        if self._listener is not None and fd == self._listener.fd:
            self._listener.accept_some(self._loop.take)

    def due_s(self) -> float:
        resume_s = None if self._listener is None else self._listener.resume_s
        due_s = min(self._loop.due_s(), super().due_s())
        return due_s if resume_s is None else min(due_s, resume_s)

    def on_end(self) -> None:
        if self._listener is not None:
            self._listener.close()
