"""Virtual time: a queue of what happens next."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Handler = Callable[[Any], None]


class Events:
    """Calls handlers in order of time; of the same time, in the order they were added.

    `now_s` is the virtual clock. Handlers add further events; a handler whose event has become
    void finds that out by itself (there is no removal).
    """

    __slots__ = ("_heap", "_serial", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self._serial = 0
        self._heap: list[tuple[float, int, Handler, Any]] = []

    def at(self, time_s: float, handler: Handler, argument: Any = None) -> None:
        """Call the handler with the argument at the time, which is not before now."""
        self._serial = serial = self._serial + 1
        heappush(self._heap, (time_s, serial, handler, argument))

    def run(self, until_s: float) -> bool:
        """Run all events up to a time; return True when none is left at all."""
        heap = self._heap
        while heap:
            if heap[0][0] > until_s:
                self.now_s = until_s
                return False
            self.now_s, _, handler, argument = heappop(heap)
            handler(argument)
        return True
