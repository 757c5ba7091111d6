"""What the machines measure of rooms and chunks, and what that costs in memory."""

from collections import Counter

import numpy as np
import pytest
from receiver_rig import ALL, AT, FIN, LAYOUT, connected, put

from prfaas.transfer import Sender
from prfaas.transfer.histogram import Histogram
from prfaas.transfer.reasons import OTHER, Reason, count_reason
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
from prfaas.wire import Abort, Ack, Done, Hello, Open, Priority, Welcome

ROOM_BYTES = 3 * (10 + 30) + 5


def sender(chunk_bytes: int = 1 << 20) -> Sender:
    machine = Sender(LAYOUT, node_id="p", session=9, limits=SendLimits(chunk_bytes=chunk_bytes))
    machine.lane_opened(1)
    machine.receive(1, Hello("d", 1, 0, 1, LAYOUT.digest(), LAYOUT.wire_groups()), 0.0)
    assert machine.next_frame(1) == Welcome("p", 9)
    return machine


def submit(machine: Sender, room: int = 7) -> None:
    machine.submit(room, group="kv", start=0, items=np.arange(3))
    machine.submit(room, group="aux", start=0, items=np.array([2]))
    machine.finish(room, {"kv": 3, "aux": 1})


def take_all(machine: Sender) -> list[ChunkOut]:
    frames = iter(lambda: machine.next_frame(1), None)
    return [frame for frame in frames if isinstance(frame, ChunkOut)]


def series(machine: object, name: str) -> dict[tuple[str, str], Histogram]:
    listed = machine.describe()["histograms"][name]  # type: ignore[attr-defined]
    return {(item["outcome"], item["priority"]): Histogram.from_json(item) for item in listed}


def test_a_sender_measures_a_room_from_its_open_to_its_done() -> None:
    machine = sender()
    machine.receive(1, Open(7, 1, 60_000, 0, (3, 1)), 10.0)
    submit(machine)
    machine.advance(10.3)
    chunks = take_all(machine)
    machine.receive(1, Ack(7, 1, tuple(c.frame.chunk for c in chunks)), 10.315)
    machine.receive(1, Done(7, 1), 12.0)
    labels = ("done", "foreground")
    assert list(series(machine, "room_s")) == [labels]
    assert series(machine, "room_s")[labels].sum == pytest.approx(2.0)
    assert series(machine, "first_byte_s")[labels].sum == pytest.approx(0.3)
    assert series(machine, "room_bytes")[labels].sum == ROOM_BYTES
    ack_s = Histogram.from_json(machine.describe()["peers"]["d"]["ack_s"])
    assert (sum(ack_s.counts), ack_s.sum) == (1, pytest.approx(0.015))


def test_a_lane_times_one_chunk_at_a_time_and_lets_go_of_one_that_never_comes_back() -> None:
    machine = sender(chunk_bytes=40)
    machine.receive(1, Open(7, 1, 60_000, 0, (3, 1)), 0.0)
    submit(machine)
    take_all(machine)
    machine.abort(7, "aborted", "", 1.0)
    machine.receive(1, Open(8, 1, 60_000, 0, (3, 1)), 2.0)
    submit(machine, 8)
    chunks = take_all(machine)
    assert len(chunks) > 2
    machine.receive(1, Ack(8, 1, tuple(c.frame.chunk for c in chunks)), 2.5)
    ack_s = Histogram.from_json(machine.describe()["peers"]["d"]["ack_s"])
    assert (sum(ack_s.counts), ack_s.sum) == (1, pytest.approx(0.5))


def test_a_failed_background_room_counts_as_such_and_one_without_bytes_has_no_first() -> None:
    machine = sender()
    machine.receive(1, Open(7, 1, 60_000, 0, (3, 1), Priority.BACKGROUND), 1.0)
    machine.receive(1, Abort(7, 1, "client_left", ""), 4.0)
    assert series(machine, "room_s")["failed", "background"].sum == pytest.approx(3.0)
    assert series(machine, "first_byte_s") == {}
    assert machine.describe()["rooms_failed_total"] == {"client_left": 1}


def test_a_receiver_measures_from_when_it_opened_the_room() -> None:
    machine = connected()
    grants = {"kv": np.array([5, 6, 9]), "aux": np.array([3])}
    machine.open_room(7, address=AT, grants=grants, prefix_tokens=0, now=100.0)
    machine.next_frame(1)
    machine.advance(100.5)
    for frame in ALL:
        put(machine, 1, frame)
    machine.advance(103.0)
    machine.receive(1, FIN)
    labels = ("done", "foreground")
    assert series(machine, "room_s")[labels].sum == pytest.approx(3.0)
    assert series(machine, "first_byte_s")[labels].sum == pytest.approx(0.5)
    assert series(machine, "room_bytes")[labels].sum == ROOM_BYTES


def test_a_histogram_counts_into_the_first_bound_that_is_large_enough() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    for value in (0.0, 1.0, 1.001, 4.0, 4.5):
        histogram.observe(value)
    assert histogram.counts == [2, 1, 1, 1]
    again = Histogram.from_json(histogram.to_json())
    assert (again.bounds, again.counts, again.sum) == (histogram.bounds, [2, 1, 1, 1], 10.501)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"bounds": [1.0], "counts": [1], "sum": 0.0},
        {"bounds": [2.0, 1.0], "counts": [0, 0, 0], "sum": 0.0},
        {"bounds": [1.0, 1.0], "counts": [0, 0, 0], "sum": 0.0},
        {"bounds": [float("nan")], "counts": [0, 0], "sum": 0.0},
        {"bounds": [1.0], "counts": [0, -1], "sum": 0.0},
        {"bounds": [1.0], "counts": [0, 1.5], "sum": 0.0},
        {"bounds": [1.0], "counts": [0, True], "sum": 0.0},
        {"bounds": [1.0], "counts": [0, 1], "sum": "x"},
        {"bounds": list(range(65)), "counts": [0] * 66, "sum": 0.0},
    ],
)
def test_what_is_no_histogram_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Histogram.from_json(raw)


def test_words_of_peers_do_not_grow_without_bound() -> None:
    counter: Counter[str] = Counter()
    for number in range(1000):
        count_reason(counter, f"word_{number}")
    count_reason(counter, "word_1")
    count_reason(counter, Reason.DEADLINE)
    assert len(counter) == 66
    assert (counter["word_1"], counter[Reason.DEADLINE], counter[OTHER]) == (2, 1, 936)
