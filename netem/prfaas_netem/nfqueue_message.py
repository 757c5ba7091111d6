"""Encoding and decoding of the kernel's NFQUEUE netlink messages. Pure.

Source: linux include/uapi/linux/netfilter/nfnetlink_queue.h and nfnetlink.h. Netlink headers are in
host order, queue numbers, packet ids and lengths in network order.
"""

import struct
from typing import NamedTuple

COPY_BYTES = 64
COPY_ALL_BYTES = 0xFFFF

_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG, _BATCH = (_SUBSYSTEM | kind for kind in range(4))
_NLMSG_ERROR = 2
_REQUEST, _ACKNOWLEDGE = 1, 4

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_FAMILY = struct.Struct(">BBH")  # family, version, queue number
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_ERROR = struct.Struct("=i")
_ID = struct.Struct(">I")
_VERDICT_BODY = struct.Struct(">II")  # verdict, packet id
_FIRST_ATTRIBUTE = _HEADER.size + _FAMILY.size
_TYPE_MASK = 0x3FFF

_PACKET_HEADER, _PAYLOAD, _CAPTURED_LENGTH = 1, 10, 13
_VERDICT_HEADER = 2
_CONFIG_COMMAND, _CONFIG_COPY, _CONFIG_LENGTH, _CONFIG_MASK, _CONFIG_FLAGS = 1, 2, 3, 4, 5
_BIND, _COPY_PACKET, _FLAG_GSO = 1, 2, 4
_DROP, _ACCEPT = 0, 1
_FAMILY_IPV4 = 2


class Packet(NamedTuple):
    """A packet that waits for its verdict: its id in the queue and its length with IP header.

    `payload` is what was copied of it, from the IP header on: all, where its size is `length`.
    """

    id: int
    length: int
    payload: bytes = b""


class Acknowledgement(NamedTuple):
    """The kernel's answer to a request: 0, or a positive errno."""

    sequence: int
    error: int


class Malformed(NamedTuple):
    """A message that does not hold what it must."""

    why: str


Message = Packet | Acknowledgement | Malformed


def bind(queue: int, *, sequence: int) -> bytes:
    """Ask to become the reader of a queue."""
    command = struct.pack(">BxH", _BIND, _FAMILY_IPV4)
    return _config(queue, _attribute(_CONFIG_COMMAND, command), sequence)


def copy_packets(queue: int, *, whole: bool, sequence: int) -> bytes:
    """Ask for the first bytes of each packet, or all; from the first request on packets come."""
    size = COPY_ALL_BYTES if whole else COPY_BYTES
    return _config(
        queue, _attribute(_CONFIG_COPY, struct.pack(">IB", size, _COPY_PACKET)), sequence
    )


def limit_length(queue: int, *, packets: int, sequence: int) -> bytes:
    """Ask the kernel to hold at most so many packets; it drops those above."""
    return _config(queue, _attribute(_CONFIG_LENGTH, _ID.pack(packets)), sequence)


def super_packets(queue: int, *, on: bool, sequence: int) -> bytes:
    """Ask for GSO super-packets whole (`on`), or split into wire packets."""
    mask = _attribute(_CONFIG_MASK, _ID.pack(_FLAG_GSO))
    flags = _attribute(_CONFIG_FLAGS, _ID.pack(_FLAG_GSO if on else 0))
    return _config(queue, mask + flags, sequence)


def drop(queue: int, packet_id: int) -> bytes:
    """Drop one packet."""
    return _verdict(_VERDICT, queue, _DROP, packet_id)


def accept(queue: int, packet_id: int) -> bytes:
    """Let one packet go."""
    return _verdict(_VERDICT, queue, _ACCEPT, packet_id)


def replace(queue: int, packet_id: int, payload: bytes) -> bytes:
    """Let one packet go with other bytes, from the IP header on."""
    return _verdict(_VERDICT, queue, _ACCEPT, packet_id, _attribute(_PAYLOAD, payload))


def accept_up_to(queue: int, packet_id: int) -> bytes:
    """Let a packet and all that came before it go."""
    return _verdict(_BATCH, queue, _ACCEPT, packet_id)


def decode(datagram: bytes) -> list[Message]:
    """Return the messages of one datagram from the kernel; never raises on bad bytes."""
    messages: list[Message] = []
    offset = 0
    while offset < len(datagram):
        if offset + _HEADER.size > len(datagram):
            return [*messages, Malformed("header cut short")]
        length, kind, _, sequence, _ = _HEADER.unpack_from(datagram, offset)
        if length < _HEADER.size or offset + length > len(datagram):
            return [*messages, Malformed(f"message length {length}")]
        messages.append(_decode_one(datagram, offset, offset + length, kind, sequence))
        offset += (length + 3) & ~3
    return messages


def _decode_one(data: bytes, start: int, end: int, kind: int, sequence: int) -> Message:
    if kind == _PACKET:
        return _decode_packet(data, start + _FIRST_ATTRIBUTE, end)
    if kind == _NLMSG_ERROR:
        if start + _HEADER.size + _ERROR.size > end:
            return Malformed("acknowledgement cut short")
        return Acknowledgement(sequence, -_ERROR.unpack_from(data, start + _HEADER.size)[0])
    return Malformed(f"message type {kind:#x}")


def _decode_packet(data: bytes, offset: int, end: int) -> Message:
    packet_id = length = None
    payload = b""
    while offset + 4 <= end:
        size, kind = _ATTRIBUTE.unpack_from(data, offset)
        kind &= _TYPE_MASK
        if size < 4 or offset + size > end:
            return Malformed(f"attribute {kind} of {size} bytes")
        if kind == _PACKET_HEADER and size >= 8:
            packet_id = _ID.unpack_from(data, offset + 4)[0]
        elif kind == _CAPTURED_LENGTH and size >= 8:
            length = _ID.unpack_from(data, offset + 4)[0]
        elif kind == _PAYLOAD:
            payload = data[offset + 4 : offset + size]
        offset += (size + 3) & ~3
    if packet_id is None:
        return Malformed("packet without id")
    # Without a length of its own the packet was given whole.
    return Packet(packet_id, len(payload) if length is None else length, payload)


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def _config(queue: int, attributes: bytes, sequence: int) -> bytes:
    size = _FIRST_ATTRIBUTE + len(attributes)
    header = _HEADER.pack(size, _CONFIG, _REQUEST | _ACKNOWLEDGE, sequence, 0)
    return header + _FAMILY.pack(0, 0, queue) + attributes


def _verdict(kind: int, queue: int, verdict: int, packet_id: int, more: bytes = b"") -> bytes:
    body = _attribute(_VERDICT_HEADER, _VERDICT_BODY.pack(verdict, packet_id)) + more
    header = _HEADER.pack(_FIRST_ATTRIBUTE + len(body), kind, _REQUEST, 0, 0)
    return header + _FAMILY.pack(0, 0, queue) + body
