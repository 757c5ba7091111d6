import random
import struct

import pytest

from prfaas_netem import nfqueue_message as m

PACKET_TYPE, ERROR_TYPE = 0x300, 2


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def netlink(kind, body, *, sequence=0):
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body


def packet(*attributes, queue=0):
    return netlink(PACKET_TYPE, struct.pack(">BBH", 2, 0, queue) + b"".join(attributes))


def packet_header(packet_id):
    return attribute(1, struct.pack(">IHB", packet_id, 0x0800, 2))


def test_packet_with_its_full_length():
    data = packet(
        packet_header(7),
        attribute(5, struct.pack(">I", 3)),
        attribute(13, struct.pack(">I", 64000)),
        attribute(14, struct.pack(">I", 2)),
        attribute(10, bytes(64)),
    )
    assert m.decode(data) == [m.Packet(id=7, length=64000, payload=bytes(64))]


def test_short_packet_is_as_long_as_its_payload():
    assert m.decode(packet(packet_header(8), attribute(10, bytes(40)))) == [
        m.Packet(8, 40, bytes(40))
    ]


def test_nested_flag_of_an_attribute_type_is_ignored():
    data = packet(packet_header(9), attribute(13 | 0x8000, struct.pack(">I", 1500)))
    assert m.decode(data) == [m.Packet(9, 1500)]


def test_several_messages_in_one_datagram():
    answer = netlink(ERROR_TYPE, struct.pack("=i", -16) + bytes(16), sequence=3)
    data = packet(packet_header(1), attribute(10, bytes(28))) + answer
    assert m.decode(data) == [m.Packet(1, 28, bytes(28)), m.Acknowledgement(3, 16)]


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        struct.pack("=IHHII", 4, PACKET_TYPE, 0, 0, 0),
        struct.pack("=IHHII", 400, PACKET_TYPE, 0, 0, 0),
        packet(),
        packet(struct.pack("=HH", 0, 1)),
        packet(struct.pack("=HH", 200, 1)),
        netlink(0x377, b""),
        netlink(ERROR_TYPE, b""),
    ],
)
def test_bad_bytes_are_told_not_raised(data):
    assert [type(each) for each in m.decode(data)] == [m.Malformed]


def test_random_bytes_never_raise():
    chance = random.Random(1)
    good = packet(packet_header(7), attribute(13, struct.pack(">I", 64000)))
    for _ in range(5000):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        m.decode(bytes(data[: chance.randrange(len(data) + 1)]))


def test_verdicts():
    head = struct.pack("=IHHII", 32, 0x301, 1, 0, 0) + struct.pack(">BBH", 0, 0, 5)
    assert m.drop(5, 9) == head + struct.pack("=HH", 12, 2) + struct.pack(">II", 0, 9)
    batch = m.accept_up_to(1, 2**32 - 1)
    assert struct.unpack_from("=H", batch, 4) == (0x303,)
    assert batch[-8:] == struct.pack(">II", 1, 2**32 - 1)


def test_configuration():
    bind = m.bind(2, sequence=4)
    assert struct.unpack_from("=IHHII", bind) == (28, 0x302, 5, 4, 0)
    assert bind[16:] == b"\0\0\0\x02" + b"\x08\0\x01\0" + b"\x01\0\0\x02"
    headers = m.copy_packets(0, whole=False, sequence=1)
    assert headers[20:] == b"\x09\0\x02\0\0\0\0\x40\x02\0\0\0"
    whole = m.copy_packets(0, whole=True, sequence=1)
    assert whole[20:] == b"\x09\0\x02\0\0\0\xff\xff\x02\0\0\0"
    assert m.limit_length(0, packets=256, sequence=1)[20:] == b"\x08\0\x03\0\0\0\x01\0"
    mask = b"\x08\0\x04\0\0\0\0\x04"
    assert m.super_packets(0, on=True, sequence=1)[20:] == mask + b"\x08\0\x05\0\0\0\0\x04"
    assert m.super_packets(0, on=False, sequence=1)[20:] == mask + b"\x08\0\x05\0\0\0\0\0"
