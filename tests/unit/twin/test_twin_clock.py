"""A twin's clock on a loop: stretched, stopped, and never running away from its calls."""

from collections.abc import Callable
from typing import Any

import pytest

from prfaas_twin.clock import VirtualClock
from prfaas_twin.loop_clock import LoopClock


class FakeHandle:
    def __init__(self, when_s: float, callback: Callable[[], None]) -> None:
        self.when_s, self.callback = when_s, callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """An event loop whose time passes by hand; `late_s` is how late it calls."""

    def __init__(self) -> None:
        self.now_s, self.late_s = 1000.0, 0.0
        self.handles: list[FakeHandle] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> FakeHandle:
        handle = FakeHandle(when_s, callback)
        self.handles.append(handle)
        return handle

    def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while True:
            live = [h for h in self.handles if not h.is_cancelled]
            due = [h for h in live if h.when_s + self.late_s <= until_s]
            if not due:
                break
            handle = min(due, key=lambda h: h.when_s)
            self.handles.remove(handle)
            self.now_s = max(self.now_s, handle.when_s + self.late_s)
            handle.callback()
        self.now_s = until_s


def clock_of(loop: FakeLoop, dilation: float = 1.0) -> LoopClock:
    made: Any = LoopClock(loop, dilation=dilation)  # type: ignore[arg-type]
    return made


def test_calls_come_in_order_stretched() -> None:
    loop, said = FakeLoop(), []
    clock = clock_of(loop, dilation=10.0)
    for when_s in (3.0, 1.0, 2.0, 1.0):
        clock.at(when_s, lambda s=when_s: said.append((s, clock.now_s, loop.now_s)))
    loop.advance(15)
    assert said == [(1.0, 1.0, 1010.0), (1.0, 1.0, 1010.0)]
    loop.advance(15)
    assert [entry[0] for entry in said] == [1.0, 1.0, 2.0, 3.0]
    assert clock.now_s == pytest.approx(3.0)


def test_a_cancelled_call_is_not_made_and_holds_up_no_other() -> None:
    loop, said = FakeLoop(), []
    clock = clock_of(loop)
    first = clock.at(1.0, said.append, 1)
    clock.at(2.0, said.append, 2)
    first.cancel()
    loop.advance(5)
    assert said == [2]


def test_a_machine_that_is_late_does_not_slow_the_compute_down() -> None:
    """A thousand steps, each called 2 ms late, take as long as they should."""
    loop, ends = FakeLoop(), []
    loop.late_s = 0.002
    clock = clock_of(loop)

    def step(left: int) -> None:
        if left:
            clock.at(clock.now_s + 0.010, step, left - 1)
        else:
            ends.append((clock.now_s, loop.now_s - 1000))

    clock.at(0.010, step, 999)
    loop.advance(20)
    assert ends[0][0] == pytest.approx(10.0)
    assert ends[0][1] == pytest.approx(10.0, abs=0.02)


def test_a_machine_that_is_far_too_late_is_told_so() -> None:
    loop, said = FakeLoop(), []
    loop.late_s = 3.0
    clock = clock_of(loop)
    clock.at(1.0, lambda: said.append(clock.now_s))
    loop.advance(10)
    assert said == [pytest.approx(3.75)]


def test_a_stopped_clock_goes_on_from_where_it_stood() -> None:
    loop, said = FakeLoop(), []
    clock = clock_of(loop, dilation=2.0)
    clock.at(2.0, lambda: said.append(loop.now_s))
    loop.advance(2)
    clock.pause()
    assert clock.is_paused
    clock.at(1.5, lambda: said.append(loop.now_s))
    loop.advance(100)
    assert said == []
    assert clock.now_s == pytest.approx(1.0)
    clock.resume()
    loop.advance(10)
    assert said == [pytest.approx(1103.0), pytest.approx(1104.0)]


def test_a_call_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop, said = FakeLoop(), []
    clock = clock_of(loop)
    clock.at(1.0, lambda: [][0])
    clock.at(1.0, said.append, "after")
    loop.advance(2)
    assert said == ["after"]
    assert "a timer's call failed" in caplog.text


def test_a_closed_clock_calls_nobody() -> None:
    loop, said = FakeLoop(), []
    clock = clock_of(loop)
    clock.at(1.0, said.append, 1)
    clock.close()
    loop.advance(5)
    assert said == []


def test_a_virtual_clock_makes_calls_that_calls_ask_for() -> None:
    clock, said = VirtualClock(), []
    clock.at(1.0, lambda: clock.at(0.5, lambda: said.append(clock.now_s)))
    clock.run(2.0)
    assert (said, clock.now_s) == ([1.0], 2.0)
