"""The arena as memory of the lanes: items of any entry, named by slots for as long as they move."""

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from prfaas.errors import TransferError
from prfaas.transfer.layout import Entry, Group, Items, Layout
from prfaas.transfer.reasons import Reason
from prfaas_pool.place import Place

MAX_SLOTS = 1 << 20
"""Items of one group that may move at a time."""


def moving_layout(item_bytes: Mapping[str, int]) -> Layout:
    """Return the layout of moves between pools whose groups have items of these sizes."""
    groups = sorted(item_bytes.items())
    return Layout(tuple(Group(name, (Entry(size, MAX_SLOTS),)) for name, size in groups))


class SlotMemory:
    """A `TransferMemory` whose items are places in an arena; nothing is copied on the way.

    Bind places before their slots are submitted or granted, and free them once the room is over.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._lock = threading.Lock()
        self._places: list[dict[int, Place]] = [{} for _ in layout.groups]
        self._next: list[int] = [0 for _ in layout.groups]

    def bind(self, group: str, places: Sequence[Place]) -> Items:
        """Give each place a slot.

        Raises:
            TransferError: too many move at once, or they have another size than the group's items.
        """
        index = self.layout.index(group)
        size = self.layout.groups[index].entries[0].item_bytes
        if any(place.item_bytes != size for place in places):
            raise TransferError(Reason.BAD_ITEMS, f"{group}: items are not of {size} bytes")
        with self._lock:
            bound = self._places[index]
            if len(bound) + len(places) > MAX_SLOTS:
                raise TransferError(Reason.BAD_ITEMS, f"{group}: more than {MAX_SLOTS} items move")
            slots = []
            for place in places:
                while self._next[index] in bound:
                    self._next[index] = (self._next[index] + 1) % MAX_SLOTS
                bound[self._next[index]] = place
                slots.append(self._next[index])
                self._next[index] = (self._next[index] + 1) % MAX_SLOTS
        return np.array(slots, dtype=np.int64)

    def free(self, group: str, slots: Items) -> None:
        """Forget slots."""
        bound = self._places[self.layout.index(group)]
        with self._lock:
            for slot in slots.tolist():
                bound.pop(slot, None)

    def source(self, group: int, entry: int, items: Items) -> list[memoryview]:  # noqa: ARG002
        """Return the memory of these slots, in order."""
        bound = self._places[group]
        return [view for slot in items.tolist() for view in bound[slot].views()]

    def destination(self, group: int, entry: int, items: Items) -> list[memoryview]:
        """Return the memory of these slots, in order."""
        return self.source(group, entry, items)
