"""A twin's clock on an event loop: stretched, and it can be stopped."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from prfaas_twin.clock import Timer, TimerQueue

logger = logging.getLogger(__name__)

#: A clock that is late by more tells its callbacks the true time: it has lost the race.
_MOST_LATE_S = 0.25


class LoopClock:
    """The profile's seconds, each of which takes `dilation` seconds of the loop's time.

    Callbacks are told the time at which they were due, so that a busy machine delays single calls
    and not, by the sum of all delays, the compute. `pause` stops it, as an engine that hangs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, dilation: float = 1.0) -> None:
        self._loop = loop
        self._dilation = dilation
        self._timers = TimerQueue()
        self._base_wall_s = loop.time()
        self._base_s = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_s = 0.0
        self._due_s: float | None = None
        self._paused_s: float | None = None

    @property
    def now_s(self) -> float:
        """The time; during a call, when the call was due."""
        if self._due_s is not None:
            return self._due_s
        return self._paused_s if self._paused_s is not None else self._real_now_s()

    @property
    def is_paused(self) -> bool:
        """Whether time stands still."""
        return self._paused_s is not None

    def at(self, when_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        """Call back at a time, at once if it is past."""
        timer = self._timers.add(when_s, callback, arguments)
        self._arm()
        return timer

    def pause(self) -> None:
        """Let time stand still until `resume`."""
        if self._paused_s is None:
            self._paused_s = self._real_now_s()
            self._disarm()

    def resume(self) -> None:
        """Let time go on from where it stood still."""
        if self._paused_s is not None:
            self._base_s, self._base_wall_s = self._paused_s, self._loop.time()
            self._paused_s = None
            self._arm()

    def close(self) -> None:
        """Make no more calls."""
        self._disarm()
        self._timers = TimerQueue()

    def _real_now_s(self) -> float:
        return self._base_s + (self._loop.time() - self._base_wall_s) / self._dilation

    def _arm(self) -> None:
        """Have the loop call when the first timer is due; in a call, that is done at its end."""
        when_s = self._timers.next_s()
        if when_s is None or self._paused_s is not None or self._due_s is not None:
            return
        if self._handle is not None:
            if self._armed_s <= when_s:
                return
            self._handle.cancel()
        self._armed_s = when_s
        wall_s = self._base_wall_s + (when_s - self._base_s) * self._dilation
        self._handle = self._loop.call_at(wall_s, self._fire)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        now_s = self._real_now_s()
        try:
            while self._paused_s is None and (timer := self._timers.take(now_s)) is not None:
                self._due_s = max(timer.when_s, now_s - _MOST_LATE_S)
                self._call(timer)
        finally:
            self._due_s = None
            self._arm()

    def _call(self, timer: Timer) -> None:
        try:
            timer.call()
        except Exception:
            # The outermost frame of a call: a bug in one must not stop the clock.
            logger.exception("a timer's call failed")
