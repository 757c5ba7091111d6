import time

import pytest

from prfaas_agent.room_book import MAX_ROOMS, RoomBook


def told(room: object, **more: object) -> dict[str, object]:
    return {"room": room, "opened_s": 1.0, "first_byte_s": None, "ended_s": 2.0, "bytes": 7} | more


def test_a_room_is_told_in_the_time_of_the_world() -> None:
    book = RoomBook()
    now_s = time.monotonic()
    book.take({"recent_rooms": [told(5, ended_s=now_s, reason="peer_lost")]})
    room = book.find(5)
    assert room is not None
    assert room["ended_at_s"] == pytest.approx(time.time(), abs=1.0)
    assert (room["first_byte_at_s"], room["bytes"], room["reason"]) == (None, 7, "peer_lost")
    assert book.find(6) is None


def test_it_forgets_the_oldest_and_ignores_what_is_no_room() -> None:
    book = RoomBook()
    for first in range(0, 2 * MAX_ROOMS, 32):
        book.take({"recent_rooms": [told(first + n) for n in range(32)]})
    assert book.find(0) is None
    assert book.find(2 * MAX_ROOMS - 1) is not None
    for hostile in (None, {}, [1, "x", {}, told("5"), told(True), told([])]):
        book.take({"recent_rooms": hostile})
    book.take({"recent_rooms": [told(1, opened_s="x", bytes="many")]})
    assert book.find(1) is None or book.find(1)["bytes"] == 0  # type: ignore[index]
