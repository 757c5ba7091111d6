"""One I/O thread of a node: an epoll over its share of the lanes.

System calls run outside the node's lock, so that other threads, and the callers of the node, go on
meanwhile. What memory a call uses is claimed under the lock before it starts, and `in_call` is held
while it runs: who ends a room waits for that, and afterwards no byte of the room's is touched.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from prfaas.transfer.send_room import ChunkOut
from prfaas_transport import tcp_info
from prfaas_transport.chunk_coder import ChunkCoder
from prfaas_transport.lane import Lane
from prfaas_transport.lane_input import LaneInput
from prfaas_transport.lane_owner import LaneOwner

log = logging.getLogger("prfaas.transport")

FILL_BYTES = 1 << 20
READS_PER_TURN = 4
ANSWER_CHUNKS = 8
IDLE_S = 60.0
SAMPLE_S = 0.2


class Node(Protocol):
    """What a thread needs of the node it works for."""

    lock: threading.Lock
    is_stopping: bool

    def settle(self, *, has_ended: bool) -> None:
        """Close dead lanes, and let go of the memory of ended rooms. Under the lock."""

    def close_lane(self, lane: Lane, reason: str) -> None:
        """Close a lane. Under the lock."""

    def fail_lane(self, lane: Lane, error: Exception) -> None:
        """Close a lane for an error; log it as what it is. Under the lock."""

    def deliver(self) -> None:
        """Hand out events. Not under the lock."""


class IoThread:
    """Runs its lanes until the node stops. `chores` are done once a turn, `due_s` says when."""

    def __init__(self, node: Node, owner: LaneOwner, name: str) -> None:
        self.lanes: dict[int, Lane] = {}
        self.in_call = threading.Lock()
        self.wanted = False
        self.waits_until_s = 0.0
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._node = node
        self._owner = owner
        self._input = LaneInput(owner, lambda: node.settle(has_ended=False))
        self._coder = ChunkCoder(node.lock, owner, self)
        self.sending: Sequence[ChunkOut] = ()
        self.reading: Lane | None = None
        self._by_fd: dict[int, Lane] = {}
        self._dead: list[Lane] = []
        self._unread: set[Lane] = set()
        self._has_moved = False
        self._sample_s = 0.0
        self._is_waiting = False
        self._is_open = True
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    # Called by others, under the lock

    def wake(self) -> None:
        """Have the thread look for work."""
        self.wanted = True
        if self._is_waiting and self._is_open:
            os.eventfd_write(self._wake_fd, 1)

    def add(self, lane: Lane) -> None:
        """Take over a lane."""
        self._epoll.register(lane.fd, _mask(lane))
        self.lanes[lane.number] = self._by_fd[lane.fd] = lane

    def remove(self, lane: Lane) -> None:
        """Let go of a closed lane; its socket is closed by this thread, which may be using it."""
        del self.lanes[lane.number]
        self._unread.discard(lane)
        self._dead.append(lane)
        if threading.current_thread() is self.thread:
            self._bury()
        else:
            self.wake()

    def uses_ended(self) -> bool:
        """Say whether the call in progress may touch memory of a room that has ended."""
        if any(not chunk.leg.live for chunk in self.sending):
            return True
        return self.reading is not None and not self._owner.is_target_live(self.reading.number)

    # What the first thread does besides

    def chores(self) -> None:
        """Do what is due."""

    def on_other(self, fd: int) -> None:
        """A descriptor became ready that is not a lane's."""

    def due_s(self) -> float:
        """Return when there are chores again, on the monotonic clock."""
        return time.monotonic() + IDLE_S

    def on_end(self) -> None:
        """The thread ends. Under the lock."""

    # The thread

    def _run(self) -> None:
        while not self._node.is_stopping:
            try:
                self._turn()
            except Exception:
                # Outermost frame of the thread: a bug in one turn must not end all transfers.
                log.exception("I/O thread: turn failed")
                time.sleep(0.05)
        self._shut()

    def _turn(self) -> None:
        """Do one round of reads, chores and writes."""
        for fd, mask in self._poll():
            lane = self._by_fd.get(fd)
            if lane is not None:
                self._on_ready(lane, mask)
            elif fd == self._wake_fd:
                os.eventfd_read(fd)
            else:
                self.on_other(fd)
        for lane in list(self._unread):
            self._unread.discard(lane)
            self._read_some(lane)
        if self._dead:
            with self._node.lock:
                self._bury()
        if self._has_moved and time.monotonic() >= self._sample_s:
            self._sample()
        self.chores()
        if self.wanted:
            self._write_all()
        self._node.deliver()

    def _poll(self) -> list[tuple[int, int]]:
        """Wait for readiness; answers to chunks are held back while more of them keep coming."""
        unanswered = self._input.num_unanswered
        if unanswered >= ANSWER_CHUNKS:
            self.wanted = True
        if self.wanted or self._unread or unanswered:
            ready = self._epoll.poll(0)
            self.wanted = self.wanted or not ready
            return ready
        self._is_waiting = True
        with self._node.lock:
            self.waits_until_s = self.due_s()
        due_s = min(self.waits_until_s, self._sample_s) if self._has_moved else self.waits_until_s
        timeout_s = 0.0 if self.wanted else due_s - time.monotonic()
        try:
            return self._epoll.poll(max(0.0, timeout_s))
        finally:
            self._is_waiting = False
            self.waits_until_s = 0.0

    def _on_ready(self, lane: Lane, mask: int) -> None:
        if lane.is_closed:
            return
        if not lane.is_ready:
            self._open(lane)
        elif mask & ~select.EPOLLIN and lane.is_blocked:
            lane.is_blocked = False
            self.wanted = True
            self._watch(lane)
        if lane.is_ready and mask & ~select.EPOLLOUT:
            self._read_some(lane)

    def _open(self, lane: Lane) -> None:
        """Take a lane on from connecting over the channel's handshake to ready."""
        try:
            lane.open(time.monotonic())
        except Exception as error:
            # Whatever a channel cannot cope with must not take the other lanes along.
            with self._node.lock:
                self._node.fail_lane(lane, error)
                self._node.settle(has_ended=True)
            return
        self.wanted = True
        self._watch(lane)

    def _watch(self, lane: Lane) -> None:
        self._epoll.modify(lane.fd, _mask(lane))

    def _sample(self) -> None:
        """Ask the kernel how the lanes fare; once more after the last byte was acknowledged."""
        now = time.monotonic()
        self._has_moved, self._sample_s = False, now + SAMPLE_S
        with self._node.lock:
            for lane in self.lanes.values():
                if lane.is_ready:
                    with contextlib.suppress(OSError):
                        sample = tcp_info.sample(lane.sock, lane.number, now)
                        self._has_moved |= lane.observe(sample)
                        self._owner.sampled(sample, lane.bytes_received)
                        lane.use(self._owner.congestion_control(lane.number))
            self._node.settle(has_ended=False)

    # Out

    def _write_all(self) -> None:
        """Fill the lanes that can be written to, and send once on each.

        What is to be encoded comes after that: the link has something to do meanwhile.
        """
        self.wanted = False
        self._input.num_unanswered = 0
        with self._node.lock:
            lanes = [lane for lane in self.lanes.values() if self._fill(lane)]
            self._node.settle(has_ended=False)
        for lane in lanes:
            if self._send(lane):
                self.wanted = True
        for lane in lanes:
            if lane.has_unencoded:
                self._coder.encode(lane)
                self.wanted = True

    def _fill(self, lane: Lane) -> bool:
        """Queue what the lane is to send next; return whether to send."""
        if lane.is_blocked or not lane.is_ready:
            return False
        try:
            while lane.queued_bytes < FILL_BYTES and not lane.is_closing:
                frame = self._owner.next_frame(lane.number)
                if frame is None:
                    break
                if isinstance(frame, ChunkOut):
                    lane.put_chunk(
                        frame,
                        self._owner.payload(frame),
                        with_digest=self._owner.wants_digest(lane.number),
                        is_unencoded=self._owner.wants_encoding(lane.number, frame),
                    )
                else:
                    lane.put(frame)
        except Exception as error:
            # A bug met on one lane must not take the others along.
            lane.fault = error
        return lane.has_output or lane.fault is not None

    def _send(self, lane: Lane) -> bool:
        """Send once; return whether the lane moved and may move more."""
        with self._node.lock:
            if lane.is_closed:
                return False
            views, self.sending = lane.offer()
            self.in_call.acquire()
        try:
            lane.seal()
            lane.taken_bytes = lane.channel.send(views)
        except BlockingIOError:
            lane.taken_bytes = 0
        except Exception as error:
            lane.fault = error
        finally:
            self.in_call.release()
        with self._node.lock:
            self.sending = ()
            self._has_moved = True
            return self._sent(lane)

    def _sent(self, lane: Lane) -> bool:
        num_bytes = lane.account(time.monotonic())
        if lane.is_closed:
            return False
        if lane.fault is not None:
            self._node.fail_lane(lane, lane.fault)
        elif lane.is_closing and not lane.has_output:
            self._node.close_lane(lane, "refused")
        elif lane.is_blocked:
            self._watch(lane)
            return False
        else:
            return num_bytes > 0
        self._node.settle(has_ended=True)
        return False

    # In

    def _read_some(self, lane: Lane) -> None:
        for _ in range(READS_PER_TURN):
            has_more = self._read(lane)
            if lane.undecoded is not None:
                self._decode(lane)
            if not has_more:
                return
        self._unread.add(lane)

    def _read(self, lane: Lane) -> bool:
        """Receive once; return whether more may be there."""
        with self._node.lock:
            if lane.is_closed:
                return False
            views, asked_bytes, payload_bytes = self._input.views(lane)
            has_room_memory = lane.target is not None and lane.encoded is None
            self.reading = lane if has_room_memory else None
            self.in_call.acquire()
        num_bytes = 0
        try:
            num_bytes = lane.channel.receive_into(views)
            lane.hash(views, min(num_bytes, payload_bytes))
        except BlockingIOError:
            num_bytes = -1
        except Exception as error:
            lane.fault = error
        finally:
            self.in_call.release()
        with self._node.lock:
            self.reading = None
            if lane.is_closed:
                return False
            if num_bytes >= 0:
                self._has_moved = True
                self._received(lane, num_bytes, payload_bytes)
            if num_bytes == asked_bytes or lane.is_closed or lane.channel.pending():
                return not lane.is_closed
            lane.wait_for_burst()
        return False

    def _decode(self, lane: Lane) -> None:
        """Decode payloads until one is missing bytes."""
        while (chunk := lane.undecoded) is not None:
            self._coder.decode(lane, chunk)
            with self._node.lock:
                self.reading = None
                if lane.is_closed:
                    lane.undecoded = None
                    return
                self._act(lane, lambda: self._input.decoded(lane, time.monotonic()))

    def _received(self, lane: Lane, num_bytes: int, payload_bytes: int) -> None:
        if not num_bytes and lane.fault is None:
            lane.fault = ConnectionError("closed by the peer")
        now = time.monotonic()
        self._act(lane, lambda: self._input.take(lane, num_bytes, payload_bytes, now))

    def _act(self, lane: Lane, act: Callable[[], None]) -> None:
        """Act on what came in on a lane, unless it failed."""
        if lane.fault is not None:
            self._node.fail_lane(lane, lane.fault)
        else:
            try:
                act()
            except Exception as error:
                # Also a bug met on one lane must not take the others along.
                self._node.fail_lane(lane, error)
        self.wanted |= self._input.wants_send
        self._input.wants_send = False
        has_ended = self._input.has_ended or lane.is_closed
        self._input.has_ended = False
        self._node.settle(has_ended=has_ended)

    # The end

    def _bury(self) -> None:
        while self._dead:
            lane = self._dead.pop()
            del self._by_fd[lane.fd]
            self._epoll.unregister(lane.fd)
            lane.channel.close()

    def _shut(self) -> None:
        with self._node.lock:
            self._is_open = False
            for lane in self.lanes.values():
                lane.is_closed = True
                self._dead.append(lane)
            self.lanes.clear()
            self._bury()
            self.on_end()
            self._epoll.close()
            os.close(self._wake_fd)


def _mask(lane: Lane) -> int:
    if lane.is_connecting:
        return select.EPOLLOUT
    if not lane.is_ready:
        return select.EPOLLOUT if lane.channel.wants_write() else select.EPOLLIN
    return select.EPOLLIN | (select.EPOLLOUT if lane.is_blocked else 0)
