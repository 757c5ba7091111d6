"""Virtual time: a queue of what happens next."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

Handler = Callable[[Any], None]
Event = tuple[float, int, Handler, Any]

_EVENTS_PER_SLOT = 64
_FEWEST_EVENTS_PER_SLOT = 16
_MOST_EVENTS_PER_SLOT = 512
_SLOTS_PER_LOOK = 64
_MOVES_PER_EVENT = 2
_SLOTS_PER_S = (1e-9, 1e9)
_LAST_SLOT = 1e300  # of all times from there on


class Events:
    """Calls handlers in order of time; of the same time, in the order they were added.

    `now_s` is the virtual clock. Handlers add further events; a handler whose event has become
    void finds that out by itself (there is no removal).

    Time is cut into slots. Only the slot under way is in order: sorted when it began, with a heap
    for what is added to it since. So an event takes as many steps whether hundreds wait or a
    million. The width of a slot follows the number of events that come in one; as a new width moves
    all that wait to other slots, it lasts for half as many events.

    Source: Brown, Calendar Queues: A Fast O(1) Priority Queue Implementation (1988).
    """

    __slots__ = (
        "_added",
        "_begun",
        "_keep_until",
        "_keys",
        "_looked_at",
        "_looked_slots",
        "_slot",
        "_slots",
        "_slots_per_s",
        "_soon",
        "_under_way",
        "added",
        "now_s",
    )

    def __init__(self) -> None:
        self.now_s = 0.0
        self.added = 0
        self._slots_per_s = 1.0
        self._slot = -1
        self._under_way: list[Event] = []  # of this slot, the first one last
        self._soon: list[Event] = []  # a heap: what was added to this slot since it began
        self._slots: dict[int, list[Event]] = {}
        self._keys: list[int] = []  # a heap: those of `_slots`
        self._added = 0  # events when this slot began
        self._looked_at = 0  # events when the width was last looked at
        self._looked_slots = 0
        self._begun = 0  # events of all slots so far, without what was added to one under way
        self._keep_until = 0  # events added and begun until the width may change

    def __len__(self) -> int:
        waiting = sum(len(events) for events in self._slots.values())
        return len(self._under_way) + len(self._soon) + waiting

    def at(self, time_s: float, handler: Handler, argument: Any = None) -> None:
        """Call the handler with the argument at the time, which is not before now."""
        self.added = serial = self.added + 1
        try:
            slot = int(time_s * self._slots_per_s)
        except OverflowError:
            slot = int(_LAST_SLOT)
        if slot <= self._slot:
            heappush(self._soon, (time_s, serial, handler, argument))
        elif slot in self._slots:
            self._slots[slot].append((time_s, serial, handler, argument))
        else:
            self._slots[slot] = [(time_s, serial, handler, argument)]
            heappush(self._keys, slot)

    def run(self, until_s: float) -> bool:
        """Run all events up to a time; return True when none is left at all.

        To a time that is over there is nothing to run, and the clock stays.
        """
        under_way, soon = self._under_way, self._soon
        while under_way or soon or self._begin_slot():
            if not soon or (under_way and under_way[-1] < soon[0]):
                if under_way[-1][0] > until_s:
                    break
                self.now_s, _, handler, argument = under_way.pop()
            else:
                if soon[0][0] > until_s:
                    break
                self.now_s, _, handler, argument = heappop(soon)
            handler(argument)
        else:
            return True
        self.now_s = max(self.now_s, until_s)
        return False

    def _begin_slot(self) -> bool:
        """Go on to the next slot, this one being done; return whether there is one."""
        if not self._keys:
            return False
        self._look_at_width()
        if not self._soon:
            self._slot = heappop(self._keys)
            events = self._slots.pop(self._slot)
            events.sort(reverse=True)
            self._under_way.extend(events)
            self._begun += len(events)
        return True

    def _look_at_width(self) -> None:
        """Change the width of slots when far too many events come in one, or hardly any."""
        num_added, self._added = self.added - self._added, self.added
        self._looked_slots += 1
        if num_added <= _MOST_EVENTS_PER_SLOT:
            if self._looked_slots < _SLOTS_PER_LOOK:
                return
            num_added = (self.added - self._looked_at) // self._looked_slots
        self._looked_at, self._looked_slots = self.added, 0
        if _FEWEST_EVENTS_PER_SLOT <= num_added <= _MOST_EVENTS_PER_SLOT:
            return
        num_events = self.added + self._begun
        if num_events < self._keep_until:
            return
        wanted_per_s = self._slots_per_s * max(num_added, 1) / _EVENTS_PER_SLOT
        slots_per_s = min(max(wanted_per_s, _SLOTS_PER_S[0]), _SLOTS_PER_S[1])
        if slots_per_s == self._slots_per_s:
            return
        num_waiting = sum(len(events) for events in self._slots.values())
        self._keep_until = num_events + num_waiting // _MOVES_PER_EVENT
        self._spread(slots_per_s)

    def _spread(self, slots_per_s: float) -> None:
        """Put all that waits into slots of another width; nothing is left of the slot under way."""
        waiting = [event for events in self._slots.values() for event in events]
        self._slots_per_s = slots_per_s
        self._slot = int(self.now_s * slots_per_s)
        slots: dict[int, list[Event]] = {}
        for event in waiting:
            slots.setdefault(int(min(event[0] * slots_per_s, _LAST_SLOT)), []).append(event)
        self._soon.extend(slots.pop(self._slot, ()))
        heapify(self._soon)
        self._slots = slots
        self._keys = list(slots)
        heapify(self._keys)
