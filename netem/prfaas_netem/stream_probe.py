"""What happens to single packets from one region to another: a paced stream of numbered ones."""

import socket
import statistics
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from prfaas_netem.probes import bound_socket
from prfaas_netem.topology import Topology

PACKET_BYTES = 256
"""Of payload; UDP and IP add 28."""

_HEAD = struct.Struct("!Iq")  # number, nanoseconds at which it was sent
_DIGEST = struct.Struct("!I")
_FILLER = bytes(range(256))[: PACKET_BYTES - _HEAD.size - _DIGEST.size]
_SO_NO_CHECK = 11
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_TIMESPEC = struct.Struct("@qq")
_BUFFER_BYTES = 16 * 1024 * 1024
_SHORTEST_SLEEP_S = 0.002
_TAIL_S = 1.0


@dataclass(frozen=True)
class StreamMeasurement:
    """Numbered packets sent one way, and what became of them.

    `overtook` are packets that arrived before one sent earlier, `loss_run` the mean length of runs
    of lost ones (0 without a loss). Delays are one way and in seconds, NaN when nothing arrived;
    `spread_s` is the width of the middle half of them.
    """

    sent: int
    lost: int
    duplicated: int
    corrupted: int
    overtook: int
    loss_run: float
    delay_min_s: float
    delay_median_s: float
    spread_s: float

    def share(self, count: int) -> float:
        """Return a count as a share of the packets sent."""
        return count / self.sent


def measure_stream(
    topology: Topology, *, source: str, target: str, count: int, interval_s: float
) -> StreamMeasurement:
    """Send `count` packets, one every `interval_s`, and look at what arrives.

    Packets go without a UDP checksum, so that damaged ones arrive and can be counted. Takes
    `count * interval_s`, the delay, and at most a second.

    Raises: StateError when a region's namespace is missing or not addressed.
    """
    with (
        bound_socket(topology, target, socket.SOCK_DGRAM) as receiver,
        bound_socket(topology, source, socket.SOCK_DGRAM) as sender,
    ):
        receiver.setblocking(False)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sender.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        arrivals: list[tuple[bytes, int]] = []
        # Not connected: a damaged port number would come back as an error of the next packet.
        _send(sender, receiver, arrivals, count=count, interval_s=interval_s)
        spec = topology.way(source, target).spec
        deadline = time.monotonic() + spec.delay_s + 4 * spec.jitter_s + _TAIL_S
        while not _all_there(arrivals, count) and time.monotonic() < deadline:
            time.sleep(_SHORTEST_SLEEP_S)
            _drain(receiver, arrivals)
        time.sleep(_SHORTEST_SLEEP_S)  # for the copy of the last one
        _drain(receiver, arrivals)
    return evaluate(arrivals, sent=count)


def packet(number: int, sent_ns: int) -> bytes:
    """Return the payload of one packet."""
    body = _HEAD.pack(number, sent_ns) + _FILLER
    return body + _DIGEST.pack(zlib.crc32(body))


def evaluate(arrivals: Sequence[tuple[bytes, int]], *, sent: int) -> StreamMeasurement:
    """Return what became of `sent` packets, of payloads and the nanoseconds of their arrival."""
    whole = [(payload, at_ns) for payload, at_ns in arrivals if _is_whole(payload)]
    corrupted = len(arrivals) - len(whole)
    heads = [(*_HEAD.unpack_from(payload), at_ns) for payload, at_ns in whole]
    first: dict[int, float] = {}
    for number, sent_ns, at_ns in heads:
        first.setdefault(number, (at_ns - sent_ns) / 1e9)
    delays = sorted(first.values()) or [float("nan")]
    quarters = statistics.quantiles(delays, n=4) if len(delays) > 1 else [delays[0]] * 3
    missing = [number not in first for number in range(sent)]
    return StreamMeasurement(
        sent=sent,
        lost=max(0, sum(missing) - corrupted),
        duplicated=len(whole) - len(first),
        corrupted=corrupted,
        overtook=_overtook(list(first)),
        loss_run=_mean_run(missing),
        delay_min_s=delays[0],
        delay_median_s=quarters[1],
        spread_s=quarters[2] - quarters[0],
    )


def _all_there(arrivals: Sequence[tuple[bytes, int]], count: int) -> bool:
    """Return whether every packet came at least once; copies do not count."""
    return len(arrivals) >= count and len({payload[:4] for payload, _ in arrivals}) >= count


def _is_whole(payload: bytes) -> bool:
    if len(payload) != PACKET_BYTES:
        return False
    body, digest = payload[: -_DIGEST.size], payload[-_DIGEST.size :]
    return _DIGEST.pack(zlib.crc32(body)) == digest


def _overtook(numbers: Sequence[int]) -> int:
    """Return how many came before one that was sent earlier.

    >>> _overtook([0, 3, 1, 2, 4])
    1
    """
    later_lowest = list(accumulate(reversed(numbers), min))[::-1]
    return sum(number > lowest for number, lowest in zip(numbers, later_lowest[1:], strict=False))


def _mean_run(missing: Sequence[bool]) -> float:
    """Return the mean length of runs of True.

    >>> _mean_run([True, True, False, True])
    1.5
    """
    starts = sum(
        now and not before for before, now in zip([False, *missing], missing, strict=False)
    )
    return sum(missing) / starts if starts else 0.0


def _send(
    sender: socket.socket,
    receiver: socket.socket,
    arrivals: list[tuple[bytes, int]],
    *,
    count: int,
    interval_s: float,
) -> None:
    """Send in steps of two milliseconds or more; what arrives meanwhile is taken in."""
    start = time.monotonic()
    address = receiver.getsockname()
    for number in range(count):
        ahead_s = start + number * interval_s - time.monotonic()
        if ahead_s > 0:
            _drain(receiver, arrivals)
            time.sleep(max(ahead_s, _SHORTEST_SLEEP_S))
        sender.sendto(packet(number, time.time_ns()), address)


def _drain(receiver: socket.socket, arrivals: list[tuple[bytes, int]]) -> None:
    while True:
        try:
            payload, ancillary, _, _ = receiver.recvmsg(2 * PACKET_BYTES, 64)
        except BlockingIOError:
            return
        arrivals.append((payload, _arrival_ns(ancillary)))


def _arrival_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return when the kernel took the packet in: how busy this process is plays no part."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds) * 10**9 + int(nanoseconds)
    return time.time_ns()
