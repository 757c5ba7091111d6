"""Virtual time against the plainest queue there is: a sorted list."""

import math
from bisect import insort
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.sim.events import Events, Handler


class SortedEvents:
    """Does what `Events` does, in O(events waiting)."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._added = 0
        self._waiting: list[tuple[float, int, Handler, Any]] = []

    def at(self, time_s: float, handler: Handler, argument: Any = None) -> None:
        self._added += 1
        insort(self._waiting, (time_s, self._added, handler, argument))

    def run(self, until_s: float) -> bool:
        while self._waiting:
            if self._waiting[0][0] > until_s:
                self.now_s = max(self.now_s, until_s)
                return False
            self.now_s, _, handler, argument = self._waiting.pop(0)
            handler(argument)
        return True


def trace(events: Any, delays_s: list[float], first: int, stops_s: list[float]) -> list[Any]:
    """Return what is called when: every event adds the next delays, until they are used up."""
    called: list[Any] = []
    left = iter(enumerate(delays_s))

    def handle(number: int) -> None:
        called.append((events.now_s, number))
        for _ in range(1 + number % 2):
            if (found := next(left, None)) is not None:
                events.at(events.now_s + found[1], handle, found[0])

    for _ in range(first):
        if (found := next(left, None)) is not None:
            events.at(found[1], handle, found[0])
    called += [(events.run(stop_s), events.now_s) for stop_s in stops_s]
    called.append(events.run(math.inf))
    return called


scattered = st.floats(0, 1e6) | st.sampled_from([0.0, 1e-9, 1.0, 1e12, math.inf])


@given(
    st.lists(scattered, max_size=400),
    st.integers(1, 300),
    st.lists(st.floats(0, 1e6), max_size=4),
)
def test_order_is_that_of_a_sorted_list(
    delays_s: list[float], first: int, stops_s: list[float]
) -> None:
    seen = trace(Events(), delays_s, first, stops_s)
    assert seen == trace(SortedEvents(), delays_s, first, stops_s)


@pytest.mark.parametrize("per_s", [1e-3, 1.0, 1e4])
def test_slots_follow_the_rate_of_events(per_s: float) -> None:
    """Ten thousand wait and a slot holds some of them, whatever the rate."""
    events = Events()
    count = [0]

    def handle(_: None) -> None:
        count[0] += 1
        if count[0] < 100_000:
            events.at(events.now_s + 10_000 / per_s, handle)

    for number in range(10_000):
        events.at(number / per_s, handle)
    events.run(99_000 / per_s)
    assert count[0] >= 98_000
    assert 8 <= per_s / events._slots_per_s <= 1024


def test_the_clock_never_goes_back() -> None:
    events = Events()
    seen: list[float] = []
    for time_s in (1.0, 5.0):
        events.at(time_s, lambda _: seen.append(events.now_s))
    assert not events.run(3.0)
    assert not events.run(2.0)
    assert events.now_s == 3.0
    assert events.run(math.inf)
    assert seen == [1.0, 5.0]


class CountedEvents(Events):
    """Counts how often an event is moved to another slot."""

    __slots__ = ("moves",)

    def __init__(self) -> None:
        super().__init__()
        self.moves = 0

    def _spread(self, slots_per_s: float) -> None:
        self.moves += len(self)
        super()._spread(slots_per_s)


def test_bursts_do_not_move_all_that_waits_again_and_again() -> None:
    """50,000 wait; a burst comes, then hardly any event for 100 s, and so on."""
    events = CountedEvents()
    waiting = 50_000
    for number in range(waiting):
        events.at(1e5 + number, lambda _: None)

    def burst(_: None) -> None:
        for number in range(2000):
            events.at(events.now_s + number * 1e-4, lambda _: None)

    for number in range(30):
        events.at(number * 100.0, burst)
        for second in range(1, 100):
            events.at(number * 100.0 + second, lambda _: None)
    events.run(3000.0)
    assert len(events) == waiting
    assert 0 < events.moves < 5 * events.added


def test_a_crowd_at_one_instant_ends_in_the_order_it_came() -> None:
    events = Events()
    seen: list[int] = []
    for number in range(20_000):
        events.at(float(number // 10_000), seen.append, number)
    assert len(events) == 20_000
    assert events.run(math.inf)
    assert seen == sorted(seen)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        Events().at(math.nan, print)
