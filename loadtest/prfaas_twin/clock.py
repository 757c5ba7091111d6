"""When things happen, in the profile's own seconds."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol


class Timer:
    """A call to come; `cancel` makes it void."""

    __slots__ = ("arguments", "callback", "when_s")

    def __init__(self, when_s: float, callback: Callable[..., None], arguments: Any) -> None:
        self.when_s = when_s
        self.callback: Callable[..., None] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        """Do not call, if that was not done yet."""
        self.callback = None

    def call(self) -> None:
        """Call, unless cancelled."""
        if self.callback is not None:
            self.callback(*self.arguments)


class Clock(Protocol):
    """Tells the time and calls back; of calls due at one time, the first asked comes first."""

    @property
    def now_s(self) -> float:
        """The time. During a call it is when the call was due, not when it was made."""

    def at(self, when_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        """Call back at a time, at once if it is past."""


class TimerQueue:
    """Timers in order of time; the heart of every clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0

    def add(self, when_s: float, callback: Callable[..., None], arguments: Any) -> Timer:
        """Take a timer in."""
        timer = Timer(when_s, callback, arguments)
        self._serial += 1
        heappush(self._heap, (when_s, self._serial, timer))
        return timer

    def next_s(self) -> float | None:
        """Return when the first timer is due that was not cancelled."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def take(self, until_s: float) -> Timer | None:
        """Take out the first timer that is due."""
        when_s = self.next_s()
        if when_s is None or when_s > until_s:
            return None
        return heappop(self._heap)[2]


class VirtualClock:
    """A clock that jumps from call to call: no waiting, and the same run every time.

    >>> clock = VirtualClock()
    >>> _ = clock.at(2.0, print, "two")
    >>> _ = clock.at(1.0, print, "one")
    >>> clock.run(1.5)
    one
    >>> clock.now_s
    1.5
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers = TimerQueue()

    def at(self, when_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        """Call back at a time, at once if it is past."""
        return self._timers.add(max(when_s, self.now_s), callback, arguments)

    def run(self, until_s: float) -> None:
        """Make all calls up to a time, which it then is."""
        while (timer := self._timers.take(until_s)) is not None:
            self.now_s = max(self.now_s, timer.when_s)
            timer.call()
        self.now_s = until_s
