"""Who gets the link: fair turns between rooms, and little for those that nobody waits for."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from link_sim import ITEM_BYTES, LAYOUT, LinkSim

from prfaas.transfer.schedule import BackgroundLimits, FairQueue, Traffic
from prfaas.transfer.send_room import SendLeg, Submission, cut_chunks
from prfaas.wire import Priority

MB = 1 << 20
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def leg(room: int, sizes: list[int]) -> SendLeg:
    """A leg with one chunk per size, in items."""
    state = SendLeg(room, 1, "d", 1, (1 << 20,), chunk_bytes=1 << 30)
    for size in sizes:
        items = LAYOUT.items(0, range(size))
        submission = Submission(0, 0, items, range(1))
        state.queue.append(cut_chunks(LAYOUT, state, submission))
    return state


@SLOW
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=60), min_size=2, max_size=12),
    st.integers(1, 32),
)
def test_rooms_with_a_backlog_get_the_same_bytes(sizes: list[list[int]], quantum: int) -> None:
    """At any time two rooms that both wait differ by a bounded number of bytes, and all is sent."""
    queue = FairQueue(quantum * ITEM_BYTES)
    legs = [leg(room, of_room) for room, of_room in enumerate(sizes)]
    sent = [0] * len(legs)
    for each in legs:
        queue.add(each)
    largest = max(map(max, sizes))
    # one quantum of first turns, a turn each out of step, and what a chunk takes too much; those
    # that are done with their first turn early get some in between the others' first turns
    slack = 3 * (quantum + largest) + len(legs) * (quantum + largest) // 4
    while (chosen := queue.next_leg()) is not None:
        chunk = chosen.take()
        queue.charge(chosen, chunk.frame.payload_bytes)
        sent[chosen.room] += chunk.frame.count
        waiting = [sent[each.room] for each in legs if each.peek() is not None]
        if waiting:
            assert max(waiting) - min(waiting) <= slack
    assert sent == [sum(of_room) for of_room in sizes]


@SLOW
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_waiting_room_is_served_however_many_new_ones_come(seed: int, batch: int) -> None:
    rng = random.Random(seed)
    queue = FairQueue(4 * ITEM_BYTES)
    old = leg(0, [4] * 30)
    queue.add(old)
    turns = 0
    room = 0
    while old.peek() is not None:
        for _ in range(rng.randrange(batch + 1)):
            room += 1
            queue.add(leg(room, [rng.randint(1, 4)]))
        chosen = queue.next_leg()
        assert chosen is not None
        queue.charge(chosen, chosen.take().frame.payload_bytes)
        turns += 1
        assert turns < 30 * 30


def test_small_rooms_are_done_after_one_turn_each_and_large_ones_share_alike() -> None:
    sim = LinkSim()
    for room in range(32):
        sim.start(room, 32 * MB)
    for room in range(32, 64):
        sim.start(room, MB)
    round_s = 64 * MB / sim.bytes_per_s
    sim.run(sim.now + 8)
    small = sorted(sim.done_s[room] - 1 for room in range(32, 64))
    assert small[-1] <= 1.3 * round_s + 3 * sim.rtt_s
    large = [sim.sent_bytes[room] for room in range(32)]
    assert max(large) - min(large) <= 4 * MB
    sim.run(sim.now + 60)
    assert len(sim.done_s) == 64


def finish_times(sim: LinkSim, num_bytes: int, *, seed: int = 0, rooms: int = 40) -> list[float]:
    """Rooms that come at random and take two fifths of the link; how long each took, sorted."""
    rng = random.Random(seed)
    at_s, starts = sim.now, {}
    for room in range(rooms):
        at_s += rng.expovariate(0.4 * sim.bytes_per_s / num_bytes)
        starts[room] = at_s
        sim.at(at_s, lambda room=room: sim.start(room, num_bytes))  # type: ignore[misc]
    sim.run(at_s + 30)
    return sorted(sim.done_s[room] - starts[room] for room in range(rooms))


@pytest.mark.parametrize("rtt_s", [0.001, 0.02, 0.1])
@pytest.mark.parametrize("num_bytes", [8 * MB, 32 * MB])
def test_background_at_full_rate_barely_touches_foreground(rtt_s: float, num_bytes: int) -> None:
    alone = finish_times(LinkSim(rtt_s=rtt_s), num_bytes)
    busy = LinkSim(rtt_s=rtt_s)
    busy.start(1000, 3000 * MB, Priority.BACKGROUND)
    beside = finish_times(busy, num_bytes)
    for index in (len(alone) // 2, -1):
        assert beside[index] <= 1.10 * alone[index]
    assert busy.sent_bytes[1000] >= 0.25 * busy.bytes_per_s * (busy.now - 1)


def test_background_fills_a_link_that_nobody_else_uses() -> None:
    sim = LinkSim(rtt_s=0.1)
    sim.start(1, 4000 * MB, Priority.BACKGROUND)
    sim.run(20)
    start = sim.sent_bytes[1]
    sim.run(30)
    assert sim.sent_bytes[1] - start >= 0.97 * 10 * sim.bytes_per_s


def test_background_gets_its_share_beside_endless_foreground() -> None:
    sim = LinkSim()
    sim.start(1, 4000 * MB)
    sim.start(2, 400 * MB, Priority.BACKGROUND)
    sim.run(20)
    share = sim.sent_bytes[2] / (sim.sent_bytes[1] + sim.sent_bytes[2])
    assert 0.015 <= share <= 0.03


def test_background_does_not_starve_where_foreground_stalls() -> None:
    """Foreground that is never acknowledged keeps the rest at the floor, not at nothing."""
    limits = BackgroundLimits()
    traffic = Traffic(limits)
    traffic.advance(100.0)
    traffic.sent(MB, is_foreground=True)
    sent, now, size = 0, 100.0, limits.chunk_bytes
    for _ in range(200):
        if traffic.allows(size, in_flight_bytes=0, window_bytes=0, is_outranked=False):
            traffic.sent(size, is_foreground=False)
            sent += size
            continue
        timer = traffic.next_timer()
        assert timer is not None
        assert timer > now
        now = timer
        traffic.advance(now)
        traffic.on_timer()
    assert sent == pytest.approx(limits.floor_bytes_per_s * (now - 100.0), rel=0.05)


def test_background_goes_on_a_moment_after_the_last_foreground_byte() -> None:
    traffic = Traffic(BackgroundLimits(share=0.0, tail_s=0.2))
    traffic.advance(10.0)
    traffic.sent(MB, is_foreground=True)
    traffic.advance(10.1)
    traffic.settled(MB, is_foreground=True)

    def allows() -> bool:
        return traffic.allows(MB, in_flight_bytes=0, window_bytes=MB, is_outranked=False)

    traffic.sent(MB, is_foreground=False)
    assert not allows()
    timer = traffic.next_timer()
    assert timer == pytest.approx(10.3)
    traffic.advance(timer)
    assert allows()
