"""A TCP relay that misbehaves: it resets, stalls, delays, splits and half-closes connections."""

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

HELD_BYTES = 32 << 10
SOCKET_BYTES = 16 << 10
"""Buffers of the relay's sockets: small, so that what sends to it is soon held up."""
RECORDED_BYTES = 1 << 10
TURN_S = 0.01


@dataclass
class Faults:
    """What is wrong with one way, until when (monotonic seconds).

    stalled: bytes are taken and kept back. unread: the relay does not even read, so that the
    sender's window closes. delay_s and piece_bytes (0: any) hold for every byte.
    """

    stalled_until_s: float = 0.0
    unread_until_s: float = 0.0
    delay_s: float = 0.0
    piece_bytes: int = 0


@dataclass(eq=False)
class _Flow:
    """One way of a connection."""

    source: socket.socket
    sink: socket.socket
    faults: Faults
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    held_bytes: int = 0
    has_ended: bool = False
    is_cut: bool = False

    def wants_read(self, now: float) -> bool:
        return (
            not self.has_ended
            and self.held_bytes < HELD_BYTES
            and now >= self.faults.unread_until_s
        )

    def wants_write(self, now: float) -> bool:
        return bool(self.held) and now >= max(self.held[0][0], self.faults.stalled_until_s)

    def read(self, now: float) -> bytes:
        """Take what came; what follows a cut is lost. Raises: OSError."""
        with contextlib.suppress(BlockingIOError):
            data = self.source.recv(HELD_BYTES)
            self.has_ended = not data
            if data and not self.is_cut:
                self.held.append((now + self.faults.delay_s, data))
                self.held_bytes += len(data)
            return data
        return b""

    def write(self) -> None:
        """Pass on what is due. Raises: OSError."""
        due_s, data = self.held[0]
        with contextlib.suppress(BlockingIOError):
            sent = self.sink.send(data[: self.faults.piece_bytes or len(data)])
            self.held_bytes -= sent
            self.held.popleft()
            if sent < len(data):
                self.held.appendleft((due_s, data[sent:]))

    def cut(self) -> None:
        """End this way only."""
        self.is_cut = True
        self.held.clear()
        self.held_bytes = 0
        with contextlib.suppress(OSError):
            self.sink.shutdown(socket.SHUT_WR)

    def end_if_drained(self) -> bool:
        """Pass the end on after the last byte; say whether all is over."""
        if self.has_ended and not self.held and not self.is_cut:
            self.cut()
        return self.has_ended and self.is_cut


class FaultyProxy:
    """Relays connections to `target`, which may be replaced. `up` is the way to the target.

    Faults may be set at any time from any thread. `passed_bytes` counts both ways.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.up, self.down = Faults(), Faults()
        self.num_connections = 0
        self.passed_bytes = 0
        self.first_bytes = b""
        self._pairs: list[tuple[_Flow, _Flow]] = []
        self._strays: deque[tuple[float, socket.socket]] = deque()
        self._orders: deque[Callable[[], None]] = deque()
        self._is_closed = False
        self._listener = socket.socket()
        _shrink(self._listener)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(256)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)
        self._thread.start()

    # Faults

    def reset(self, picks: Iterable[int]) -> None:
        """Reset connections, picked by numbers taken modulo how many there are."""
        self._order(lambda: [_reset(pair) for pair in self._picked(picks)])

    def half_close(self, pick: int) -> None:
        """End one way of one connection."""
        self._order(lambda: [pair[pick % 2].cut() for pair in self._picked([pick])])

    def stray(self, data: bytes, keep_s: float) -> None:
        """Connect to the target besides, say `data` and keep the connection for a while."""
        self._order(lambda: self._connect_stray(data, keep_s))

    def heal(self) -> None:
        """End all faults but what is broken already."""
        self.up.__init__()  # type: ignore[misc]
        self.down.__init__()  # type: ignore[misc]

    def close(self) -> None:
        """Reset all connections and stop."""
        self._is_closed = True
        os.eventfd_write(self._wake_fd, 1)
        self._thread.join()

    # The thread

    def _order(self, what: Callable[[], object]) -> None:
        self._orders.append(what)  # type: ignore[arg-type]

    def _picked(self, picks: Iterable[int]) -> list[tuple[_Flow, _Flow]]:
        if not self._pairs:
            return []
        numbers = {pick % len(self._pairs) for pick in picks}
        return [self._pairs[number] for number in sorted(numbers)]

    def _run(self) -> None:
        try:
            while not self._is_closed:
                while self._orders:
                    self._orders.popleft()()
                self._turn()
        finally:
            for pair in self._pairs:
                _reset(pair)
                _close(pair)
            for _, sock in self._strays:
                sock.close()
            self._listener.close()
            os.close(self._wake_fd)

    def _turn(self) -> None:
        now = time.monotonic()
        while self._strays and self._strays[0][0] <= now:
            self._strays.popleft()[1].close()
        poll, masks = select.poll(), {self._listener.fileno(): select.POLLIN}
        masks[self._wake_fd] = select.POLLIN
        for flow in self._flows():
            for sock, mask, is_wanted in (
                (flow.source, select.POLLIN, flow.wants_read(now)),
                (flow.sink, select.POLLOUT, flow.wants_write(now)),
            ):
                if is_wanted:
                    masks[sock.fileno()] = masks.get(sock.fileno(), 0) | mask
        for fd, mask in masks.items():
            poll.register(fd, mask)
        ready = {fd for fd, _ in poll.poll(1000 * TURN_S)}
        if self._listener.fileno() in ready:
            self._accept()
        self._move(ready)

    def _flows(self) -> list[_Flow]:
        return [flow for pair in self._pairs for flow in pair]

    def _move(self, ready: set[int]) -> None:
        now = time.monotonic()
        for pair in list(self._pairs):
            try:
                for flow in pair:
                    if flow.source.fileno() in ready and flow.wants_read(now):
                        data = flow.read(now)
                        if flow is pair[0] and len(self.first_bytes) < RECORDED_BYTES:
                            self.first_bytes += data
                    if flow.sink.fileno() in ready and flow.wants_write(now):
                        self.passed_bytes += flow.held_bytes
                        flow.write()
                        self.passed_bytes -= flow.held_bytes
                is_over = [flow.end_if_drained() for flow in pair]
            except OSError:
                _reset(pair)
                is_over = [True]
            if all(is_over):
                _close(pair)
                self._pairs.remove(pair)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        self.num_connections += 1
        far = socket.socket()
        try:
            _shrink(far)
            far.settimeout(1.0)
            far.connect(self.target)
        except OSError:
            near.close()
            far.close()
            return
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs.append((_Flow(near, far, self.up), _Flow(far, near, self.down)))

    def _connect_stray(self, data: bytes, keep_s: float) -> None:
        with contextlib.suppress(OSError):
            sock = socket.create_connection(self.target, timeout=1.0)
            self._strays.append((time.monotonic() + keep_s, sock))
            sock.setblocking(False)
            sock.send(data)


def _shrink(sock: socket.socket) -> None:
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)


def _reset(pair: tuple[_Flow, _Flow]) -> None:
    for flow in pair:
        linger = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            flow.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            flow.source.shutdown(socket.SHUT_RDWR)
        flow.has_ended = flow.is_cut = True


def _close(pair: tuple[_Flow, _Flow]) -> None:
    for flow in pair:
        flow.source.close()
