"""Submitting layer after layer, before the layers are computed."""

from dataclasses import replace

import numpy as np
import pytest

from prfaas.errors import TransferError
from prfaas.transfer import Entry, Group, Layout, RoomSent, Sender
from prfaas.transfer.send_room import ChunkOut
from prfaas.transfer.sender import SendLimits
from prfaas.wire import Ack, Chunk, Done, Hello, Open

LAYOUT = Layout(
    (
        Group("kv", tuple(Entry(10, 100) for _ in range(6))),  # three layers of K and V
        Group("aux", (Entry(5, 4),)),
    )
)


def opened(**limits: int) -> Sender:
    machine = Sender(LAYOUT, node_id="p", session=9, limits=SendLimits(**limits))
    for lane, node_id in ((1, "d"), (2, "d2")):
        machine.lane_opened(lane)
        hello = Hello(node_id, 1, 0, 1, LAYOUT.digest(), LAYOUT.wire_groups())
        machine.receive(lane, hello, 0.0)
        machine.next_frame(lane)
    machine.receive(1, Open(7, 1, 60_000, 0, (8, 1)), 0.0)
    return machine


def chunks(machine: Sender, lane: int = 1) -> list[tuple[int, int, int, int]]:
    found = []
    while (out := machine.next_frame(lane)) is not None:
        if isinstance(out, ChunkOut):
            frame: Chunk = out.frame
            found.append((frame.group, frame.entry, frame.start, frame.count))
    return found


def submit_layers(machine: Sender) -> None:
    for layer in range(3):
        entries = range(2 * layer, 2 * layer + 2)
        machine.submit(
            7, group="kv", start=0, items=np.arange(8), entries=entries, ready=100 + layer
        )
    machine.submit(7, group="aux", start=0, items=np.array([2]))
    machine.finish(7, {"kv": 8, "aux": 1})


def test_nothing_is_sent_before_it_is_ready_and_all_of_it_right_after() -> None:
    machine = opened()
    submit_layers(machine)
    assert chunks(machine) == [(1, 0, 0, 1)]
    machine.mark_ready(7, 101)
    assert chunks(machine) == [(0, 2, 0, 8), (0, 3, 0, 8)]
    machine.mark_ready(7, 101)
    assert chunks(machine) == []
    machine.mark_ready(7, 100)
    machine.mark_ready(7, 102)
    assert sorted(entry for _, entry, _, _ in chunks(machine)) == [0, 1, 4, 5]
    machine.receive(1, Done(7, 1), 0.0)
    assert RoomSent(7) in machine.take_events()


def test_ready_may_come_before_the_submission() -> None:
    machine = opened()
    machine.mark_ready(7, 5)
    machine.submit(7, group="kv", start=0, items=np.arange(2), entries=range(1), ready=5)
    assert chunks(machine) == [(0, 0, 0, 2)]


def test_a_peer_that_opens_late_gets_what_is_ready_and_later_the_rest() -> None:
    machine = opened()
    submit_layers(machine)
    machine.mark_ready(7, 100)
    machine.receive(2, Open(7, 1, 60_000, 0, (8, 1)), 0.0)
    assert sorted(chunks(machine, 2)) == [(0, 0, 0, 8), (0, 1, 0, 8), (1, 0, 0, 1)]
    machine.mark_ready(7, 101)
    assert chunks(machine, 2) == chunks(machine, 1)[-2:] == [(0, 2, 0, 8), (0, 3, 0, 8)]


def test_what_waits_counts_for_the_queue_and_is_forgotten_with_the_room() -> None:
    machine = opened(max_queued_chunks=6)
    machine.submit(7, group="kv", start=0, items=np.arange(8), ready=1)
    assert machine.num_queued_chunks == 6
    with pytest.raises(TransferError, match="queue_full"):
        machine.submit(7, group="aux", start=0, items=np.array([2]), ready=1)
    machine.abort(7, "x", "", 0.0)
    assert machine.num_queued_chunks == 0
    machine.mark_ready(7, 1)
    assert chunks(machine) == []


def test_finish_counts_every_entry() -> None:
    machine = opened()
    machine.submit(7, group="kv", start=0, items=np.arange(8), entries=range(5))
    machine.submit(7, group="aux", start=0, items=np.array([2]))
    with pytest.raises(TransferError, match="kv: 0 items submitted, finish says 8"):
        machine.finish(7, {"kv": 8, "aux": 1})


def test_whole_and_partial_submissions_of_a_group_add_up() -> None:
    machine = opened()
    machine.submit(7, group="kv", start=0, items=np.arange(4))
    machine.submit(7, group="kv", start=4, items=np.arange(4), entries=range(3))
    machine.submit(7, group="kv", start=4, items=np.arange(4), entries=range(3, 6))
    machine.submit(7, group="aux", start=0, items=np.array([2]))
    machine.finish(7, {"kv": 8, "aux": 1})
    assert len(chunks(machine)) == 13


@pytest.mark.parametrize(
    "entries", [range(0), range(7), range(-1, 2), range(0, 6, 2), range(6, 7), range(3, 1)]
)
def test_entries_out_of_range_are_refused(entries: range) -> None:
    machine = opened()
    with pytest.raises(TransferError, match="bad_items"):
        machine.submit(7, group="kv", start=0, items=np.arange(1), entries=entries)
    assert machine.num_queued_chunks == 0


def test_a_token_for_a_room_that_is_not_open_is_ignored() -> None:
    machine = opened()
    machine.mark_ready(99, 1)
    assert chunks(machine) == []


def test_a_new_chunk_size_counts_for_rooms_opened_from_then_on() -> None:
    machine = opened(chunk_bytes=80)
    machine.submit(7, group="kv", start=0, items=np.arange(8), ready=1)
    machine.limits = replace(machine.limits, chunk_bytes=10)
    machine.mark_ready(7, 1)
    assert len(chunks(machine)) == 6
    machine.receive(1, Ack(7, 1, tuple(range(6))), 0.0)
    assert machine.num_queued_chunks == 0
    machine.receive(1, Open(8, 2, 60_000, 0, (8, 1)), 0.0)
    machine.submit(8, group="kv", start=0, items=np.arange(8))
    assert len(chunks(machine)) == machine.num_queued_chunks == 48
