import random

from prfaas_netem.held_packets import HeldPackets, flipped
from prfaas_netem.nfqueue_message import Packet
from prfaas_netem.shaper import Fate


class Kernel:
    """A queue as the kernel has it: a batch verdict frees all up to a packet."""

    def __init__(self):
        self.waiting = []
        self.out = []
        self.verdicts = 0

    def take(self, packet):
        self.waiting.append(packet)

    def release(self, last_id):
        self.verdicts += 1
        self.out += [(each.id, each.payload) for each in self.waiting if each.id <= last_id]
        self.waiting = [each for each in self.waiting if each.id > last_id]

    def release_one(self, packet_id, payload=None):
        self.verdicts += 1
        (mine,) = [each for each in self.waiting if each.id == packet_id]
        self.waiting.remove(mine)
        self.out.append((packet_id, mine.payload if payload is None else payload))

    def send(self, packet):
        self.out.append(("copy", packet))


def held():
    kernel = Kernel()
    return kernel, HeldPackets(kernel, kernel)


def add(kernel, packets, number, fate, *, whole=True):
    packet = Packet(number, 30, bytes([number]) * (30 if whole else 20))
    kernel.take(packet)
    packets.add(packet, fate)


def test_one_verdict_frees_all_that_is_due():
    kernel, packets = held()
    for number in range(5):
        add(kernel, packets, number, Fate(due=float(number)))
    assert packets.next_due() == 0
    packets.release(3.0)
    assert [each[0] for each in kernel.out] == [0, 1, 2, 3]
    assert kernel.verdicts == 1
    assert (len(packets), packets.next_due()) == (1, 4.0)


def test_an_overtaker_goes_alone_and_first():
    kernel, packets = held()
    add(kernel, packets, 1, Fate(due=5.0))
    add(kernel, packets, 2, Fate(due=1.0, overtakes=True))
    add(kernel, packets, 3, Fate(due=6.0))
    packets.release(1.0)
    assert [each[0] for each in kernel.out] == [2]
    packets.release(6.0)
    assert [each[0] for each in kernel.out] == [2, 1, 3]


def test_a_corrupted_packet_keeps_its_place():
    kernel, packets = held()
    add(kernel, packets, 1, Fate(due=1.0))
    add(kernel, packets, 2, Fate(due=1.0, flipped_bit=160))
    add(kernel, packets, 3, Fate(due=1.0))
    packets.release(1.0)
    assert [each[0] for each in kernel.out] == [1, 2, 3]
    assert kernel.out[1][1] == bytes([2] * 20 + [0x82] + [2] * 9)
    assert kernel.out[0][1] == bytes([1]) * 30


def test_a_copy_is_whole_and_comes_when_it_is_due():
    kernel, packets = held()
    add(kernel, packets, 1, Fate(due=1.0, flipped_bit=200, copy_due=2.0))
    packets.release(1.5)
    assert [each[0] for each in kernel.out] == [1]
    packets.release(2.0)
    assert kernel.out[1] == ("copy", bytes([1]) * 30)
    assert packets.next_due() is None


def test_a_packet_known_in_part_is_let_through_as_it_is():
    kernel, packets = held()
    add(kernel, packets, 1, Fate(due=1.0, flipped_bit=200, copy_due=1.0), whole=False)
    packets.release(1.0)
    assert kernel.out == [(1, bytes([1]) * 20)]


def test_a_shift_moves_packets_in_order_only():
    kernel, packets = held()
    add(kernel, packets, 1, Fate(due=5.0))
    add(kernel, packets, 2, Fate(due=1.0, overtakes=True))
    packets.shift(-4.5)
    assert packets.next_due() == 0.5
    packets.release(0.5)
    assert [each[0] for each in kernel.out] == [1]


def test_flipping_twice_gives_the_packet_back():
    chance = random.Random(2)
    packet = chance.randbytes(60)
    for bit in range(0, 480, 7):
        assert flipped(packet, bit) != packet
        assert flipped(flipped(packet, bit), bit) == packet
