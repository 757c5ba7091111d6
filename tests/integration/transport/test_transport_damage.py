"""A link that flips a bit: the room arrives whole, or both sides learn that it did not."""

import contextlib
import socket
from collections.abc import Iterator

from transport_rig import ReceiveSide, SendSide, picks, until
from wiretap import Wiretap

from prfaas_transport import RoomFailed, RoomOpened, RoomReceived

ROOM = 5
CHUNK = b"PF\x02\x05" + (45).to_bytes(4, "big") + ROOM.to_bytes(8, "big")


class BadLink(Wiretap):
    """Flips one bit in the payload of the first chunk of the room, on `num_lanes` lanes."""

    def __init__(self, target: tuple[str, int], num_lanes: int) -> None:
        self.left = num_lanes
        super().__init__(target)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        is_right = False
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                at = data.find(CHUNK) + 100
                if self.left > 0 and not is_right and 100 <= at < len(data):
                    self.left -= 1
                    data[at] ^= 1
                    is_right = True
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def over_bad_link(num_lanes: int, **config: int) -> Iterator[tuple[SendSide, ReceiveSide, str]]:
    """Send a room; yield the sides and how it ended for the receiver."""
    send = SendSide(**config)
    link = BadLink(send.node.address, num_lanes)
    receive = ReceiveSide(**config)
    try:
        items = picks(1, kv=800)
        receive.node.open_room(ROOM, address=link.address, grants=items)
        send.events.wait(RoomOpened)
        send.send(ROOM, items)
        until(lambda: ends(receive))
        yield send, receive, getattr(ends(receive)[0], "reason", "")
    finally:
        receive.node.close()
        link.close()
        send.node.close()


def ends(receive: ReceiveSide) -> list[RoomReceived | RoomFailed]:
    return [e for e in receive.events.all if isinstance(e, RoomReceived | RoomFailed)]


def is_right(send: SendSide, receive: ReceiveSide) -> bool:
    items = picks(1, kv=800)["kv"]
    pairs = zip(send.arrays["kv"], receive.arrays["kv"], strict=True)
    return all((mine[items] == theirs[items]).all() for mine, theirs in pairs)


def test_a_flipped_bit_costs_a_lane_and_not_the_room() -> None:
    with over_bad_link(1) as (send, receive, reason):
        assert reason == ""
        assert receive.node.stats()["chunks_damaged_total"] == 1
        assert is_right(send, receive)


def test_the_only_lane_is_kept_until_there_is_another() -> None:
    with over_bad_link(1, lanes=1) as (send, receive, reason):
        assert reason == ""
        assert receive.node.stats()["chunks_damaged_total"] == 1
        assert is_right(send, receive)
        until(lambda: receive.node.stats()["lanes_lost_total"] == 1)


def test_without_checksums_it_would_have_gone_unnoticed() -> None:
    with over_bad_link(1, checksums=False) as (send, receive, reason):
        assert reason == ""
        assert not is_right(send, receive)


def test_a_link_that_damages_everything_fails_the_room_on_both_sides() -> None:
    with over_bad_link(1000) as (send, _, reason):
        assert reason in {"digest_mismatch", "lanes_lost"}
        send.events.wait(RoomFailed, room=ROOM)
