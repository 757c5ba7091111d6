"""Measurements of the link as it is: round trip, rate, loss. They need no program in the regions.

A socket belongs to the namespace in which it was made, so one process can hold both ends.
"""

import contextlib
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass

from prfaas.errors import StateError
from prfaas_netem.namespace import inside
from prfaas_netem.topology import Topology

_PROBE_TIMEOUT_S = 0.9  # below TCP's first retransmission, so a lost probe is no slow one
_BLOCK_BYTES = 1024 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_GRACE_S = 5.0
_WARM_UP_SHARE = 0.3
_LOSS_BATCH = 50
_LOSS_BUFFER_BYTES = 16 * 1024 * 1024
_SO_RCVBUFFORCE = 33


@dataclass(frozen=True)
class RttMeasurement:
    """Round trips of TCP handshakes, in seconds. The values are NaN when all were lost."""

    min_s: float
    median_s: float
    max_s: float
    sent: int
    lost: int


@dataclass(frozen=True)
class RateMeasurement:
    """A TCP burst: payload bits per second after the start-up, and all that was received."""

    bits_per_s: float
    received_bytes: int
    seconds: float


@dataclass(frozen=True)
class LossMeasurement:
    """Small UDP packets sent one way, and how many did not arrive."""

    sent: int
    lost: int

    @property
    def share(self) -> float:
        """Lost packets as a share of those sent."""
        return self.lost / self.sent


def measure_rtt(topology: Topology, *, source: str, target: str, count: int = 5) -> RttMeasurement:
    """Time TCP handshakes from one region to another, one after the other.

    A handshake of more than 0.9 s counts as lost: TCP sends again after one second.

    Raises: StateError when a region's namespace is missing or not addressed.
    """
    samples = []
    with _listener(topology, target) as listener:
        listener.setblocking(False)
        for _ in range(count):
            elapsed = _handshake_s(topology, source, listener)
            if elapsed is not None:
                samples.append(elapsed)
    nothing = [float("nan")]
    return RttMeasurement(
        min_s=min(samples or nothing),
        median_s=statistics.median(samples or nothing),
        max_s=max(samples or nothing),
        sent=count,
        lost=count - len(samples),
    )


def measure_rate(
    topology: Topology,
    *,
    source: str,
    target: str,
    seconds: float = 1.0,
    limit_bytes: int = 2 * 1024**3,
) -> RateMeasurement:
    """Send one TCP stream for `seconds` or `limit_bytes`, whichever ends first.

    The first 30 % of the time is TCP's start-up and does not count for the rate. Takes at most
    about 5 s more than `seconds`.

    Raises: StateError when no connection comes up.
    """
    with (
        _listener(topology, target) as listener,
        _connection(topology, source, listener) as sender,
        _accepted(listener) as receiver,
    ):
        feeder = threading.Thread(target=_send_for, args=(sender, seconds, limit_bytes))
        feeder.start()
        try:
            return _receive(receiver, seconds)
        finally:
            receiver.close()
            feeder.join()


def measure_loss(
    topology: Topology, *, source: str, target: str, count: int = 2000
) -> LossMeasurement:
    """Send small UDP packets one way and count them. Their rate is some 5,000 a second.

    Raises: StateError when a region's namespace is missing or not addressed.
    """
    with (
        bound_socket(topology, target, socket.SOCK_DGRAM) as receiver,
        bound_socket(topology, source, socket.SOCK_DGRAM) as sender,
    ):
        sender.connect(receiver.getsockname())
        receiver.setblocking(False)
        # A busy machine lets packets pile up here; what overflows would look like the link's loss.
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _LOSS_BUFFER_BYTES)
        arrived: set[bytes] = set()
        for number in range(count):
            sender.send(number.to_bytes(4, "big"))
            if number % _LOSS_BATCH == _LOSS_BATCH - 1:
                time.sleep(0.01)
                _drain(receiver, arrived)
        deadline = time.monotonic() + topology.way(source, target).spec.delay_s + 2.0
        while len(arrived) < count and time.monotonic() < deadline:
            time.sleep(0.05)
            _drain(receiver, arrived)
    return LossMeasurement(sent=count, lost=count - len(arrived))


def bound_socket(topology: Topology, region: str, kind: socket.SocketKind) -> socket.socket:
    """Return a socket in a region, bound to its address and a free port.

    Raises: StateError when the region's namespace is missing or not addressed.
    """
    with inside(topology.namespace(region)):
        result = socket.socket(socket.AF_INET, kind)
    try:
        result.bind((topology.address(region), 0))
    except OSError as error:
        result.close()
        raise StateError(f"region {region} has no address: {error.strerror}") from error
    return result


def _listener(topology: Topology, region: str) -> socket.socket:
    result = bound_socket(topology, region, socket.SOCK_STREAM)
    result.listen(16)
    result.settimeout(_GRACE_S)
    return result


def _handshake_s(topology: Topology, source: str, listener: socket.socket) -> float | None:
    with bound_socket(topology, source, socket.SOCK_STREAM) as caller:
        caller.settimeout(_PROBE_TIMEOUT_S)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        start = time.perf_counter()
        try:
            caller.connect(listener.getsockname())
        except OSError:
            return None
        elapsed = time.perf_counter() - start
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
    return elapsed


def _connection(topology: Topology, region: str, listener: socket.socket) -> socket.socket:
    result = bound_socket(topology, region, socket.SOCK_STREAM)
    result.settimeout(_GRACE_S)
    try:
        result.connect(listener.getsockname())
    except OSError as error:
        result.close()
        raise StateError(
            f"region {region} cannot reach {listener.getsockname()[0]}: the link is down or lossy"
        ) from error
    return result


def _accepted(listener: socket.socket) -> socket.socket:
    try:
        return listener.accept()[0]
    except TimeoutError as error:
        raise StateError("the link lost the handshake of a rate measurement; try again") from error


def _send_for(sender: socket.socket, seconds: float, limit_bytes: int) -> None:
    block = bytes(_BLOCK_BYTES)
    end = time.monotonic() + seconds
    left = limit_bytes
    # The receiver hangs up when it has seen enough, whatever is still on the way.
    with contextlib.suppress(OSError):
        while left > 0 and time.monotonic() < end:
            left -= sender.send(block[: min(left, _BLOCK_BYTES)])
        sender.shutdown(socket.SHUT_WR)


def _receive(receiver: socket.socket, seconds: float) -> RateMeasurement:
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    receiver.settimeout(_GRACE_S)
    marks: list[tuple[float, int]] = []
    total = 0
    start = time.monotonic()
    while time.monotonic() < start + seconds + _GRACE_S:
        try:
            count = receiver.recv_into(buffer)
        except TimeoutError:
            break
        if not count:
            break
        total += count
        marks.append((time.monotonic(), total))
    return _rate_of(marks)


def _rate_of(marks: list[tuple[float, int]]) -> RateMeasurement:
    if len(marks) < 2:
        raise StateError("the link carried no data while its rate was measured")
    (start, _), (end, total) = marks[0], marks[-1]
    warm = start + _WARM_UP_SHARE * (end - start)
    since, before = next(mark for mark in marks if mark[0] >= warm)
    if since >= end:
        since, before = marks[0]
    rate = (total - before) * 8 / max(end - since, 1e-9)
    return RateMeasurement(bits_per_s=rate, received_bytes=total, seconds=end - start)


def _drain(receiver: socket.socket, arrived: set[bytes]) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            arrived.add(receiver.recv(16))
