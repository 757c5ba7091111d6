"""One NFQUEUE of the calling thread's namespace: packets wait in the kernel for their verdict."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from prfaas.errors import PreflightError, StateError
from prfaas_netem import nfqueue_message as message
from prfaas_netem.nfqueue_message import Acknowledgement, Malformed, Packet

_NETLINK_NETFILTER = 12
_SOL_NETLINK = 270
_NETLINK_NO_ENOBUFS = 5
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER_BYTES = 64 * 1024 * 1024
_DATAGRAM_BYTES = 8192
_QUEUE_PACKETS = 200_000
_ANSWER_TIMEOUT_S = 5.0
_MAX_BATCH = 128
_DROP_COLUMNS = slice(5, 7)


class PacketQueue:
    """Reader of one queue. Close it, or use it as a context manager.

    Raises: StateError when another process reads this queue, PreflightError when the kernel cannot.
    """

    def __init__(self, number: int, *, super_packets: bool) -> None:
        self.number = number
        self.malformed_messages = 0
        self.refused_requests = 0
        self._sequence = 0
        self._early: list[Packet] = []
        self._socket = _open_socket()
        try:
            self._ask(message.bind(number, sequence=self._next()))
            length = message.limit_length(number, packets=_QUEUE_PACKETS, sequence=self._next())
            self._ask(length)
            mode = message.super_packets(number, on=super_packets, sequence=self._next())
            self._ask(mode)
            self._ask(message.copy_packets(number, whole=False, sequence=self._next()))
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when packets wait."""
        return self._socket.fileno()

    def receive(self) -> list[Packet]:
        """Return packets that wait, without blocking; a bounded number, so ask again."""
        packets, self._early = self._early, []
        with contextlib.suppress(BlockingIOError):
            while len(packets) < _MAX_BATCH:
                self._sort(self._socket.recv(_DATAGRAM_BYTES), packets)
        return packets

    def release(self, last_id: int) -> None:
        """Let a packet and all that came before it go."""
        self._socket.send(message.accept_up_to(self.number, last_id))

    def release_one(self, packet_id: int, payload: bytes | None = None) -> None:
        """Let one packet go, with other bytes where given."""
        if payload is None:
            self._socket.send(message.accept(self.number, packet_id))
        else:
            self._socket.send(message.replace(self.number, packet_id, payload))

    def drop(self, packet_ids: list[int]) -> None:
        """Drop packets."""
        self._socket.send(b"".join(message.drop(self.number, each) for each in packet_ids))

    def split_super_packets(self, split: bool) -> None:
        """Switch between super-packets and wire packets for packets to come."""
        request = message.super_packets(self.number, on=not split, sequence=self._next())
        self._socket.send(request)

    def copy_whole(self, whole: bool) -> None:
        """Get the bytes of packets to come, or only their headers."""
        self._socket.send(message.copy_packets(self.number, whole=whole, sequence=self._next()))

    def kernel_drops(self) -> int:
        """Return how many packets the kernel dropped because the queue was full or unread."""
        lines = Path("/proc/thread-self/net/netfilter/nfnetlink_queue").read_text().splitlines()
        for columns in map(str.split, lines):
            if columns and int(columns[0]) == self.number:
                return sum(map(int, columns[_DROP_COLUMNS]))
        return 0

    def close(self) -> None:
        """Give the queue up; the kernel drops the packets in it."""
        self._socket.close()

    def __enter__(self) -> "PacketQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _ask(self, request: bytes) -> None:
        self._socket.send(request)
        while True:
            try:
                answers = message.decode(self._socket.recv(_DATAGRAM_BYTES))
            except TimeoutError as error:
                raise PreflightError("the kernel does not answer on NFQUEUE") from error
            # The last request starts the flow: packets may overtake its answer.
            self._early += [each for each in answers if isinstance(each, Packet)]
            for answer in answers:
                if isinstance(answer, Acknowledgement):
                    if answer.error:
                        raise _refusal(self.number, answer.error)
                    return

    def _sort(self, datagram: bytes, packets: list[Packet]) -> None:
        for each in message.decode(datagram):
            if isinstance(each, Packet):
                packets.append(each)
            elif isinstance(each, Malformed):
                self.malformed_messages += 1
            elif each.error:
                self.refused_requests += 1


def _open_socket() -> socket.socket:
    try:
        result = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    except OSError as error:
        raise PreflightError(f"the kernel has no netfilter netlink: {error.strerror}") from error
    try:
        result.bind((0, 0))
        result.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        result.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
        result.settimeout(_ANSWER_TIMEOUT_S)
    except OSError as error:
        result.close()
        raise PreflightError(f"cannot use NFQUEUE: {error.strerror}; run as root") from error
    return result


def _refusal(number: int, code: int) -> Exception:
    if code in (errno.EBUSY, errno.EPERM):
        return StateError(f"queue {number} cannot be had: another process reads it, or no root")
    return PreflightError(f"the kernel refuses NFQUEUE: {os.strerror(code)}")
