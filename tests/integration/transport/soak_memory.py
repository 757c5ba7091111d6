"""Memory whose every byte is accounted for: handed out, or known and never to change."""

import threading
from dataclasses import dataclass, field

import numpy as np

from prfaas_transport import Entry, Group, Layout, Memory


def layout(scale: int) -> Layout:
    """Return the soak's layout; how many items a side has is its own affair."""
    return Layout(
        (
            Group("kv", tuple(Entry(size, 480 * scale) for size in (4096, 4096, 9000))),
            Group("state.0.mamba", (Entry(60_000, 24 * scale),)),
            Group("aux", (Entry(100, 60 * scale), Entry(7, 60 * scale))),
        )
    )


LAYOUT = layout(1)
GUARD_BYTES = 4096
EVERY_NTH_IS_NEVER_USED = 5
UNUSED = 0xEE  # what is not handed out, and destinations before they are written
SCRIBBLE = 0xDD  # source items that are not in use
MOST_CONTENT = 0x7F  # so neither of these is ever content

Items = dict[str, np.ndarray]


def content(room: int, group: int, entry: int, count: int) -> np.ndarray:
    """Return what the first `count` positions of a room carry: `(count, item_bytes)`."""
    item_bytes = LAYOUT.groups[group].entries[entry].item_bytes
    made = np.random.Generator(np.random.SFC64([room, group, entry])).bytes(count * item_bytes)
    return np.frombuffer(made, np.uint8).reshape(count, item_bytes) & MOST_CONTENT


@dataclass
class Arena:
    """The memory of one node; `problems` holds every byte found where it must not be."""

    idle: int
    layout: Layout = LAYOUT
    problems: list[str] = field(default_factory=list)
    checks: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._whole = [
            [
                np.full(e.num_items * e.item_bytes + 2 * GUARD_BYTES, self.idle, np.uint8)
                for e in g.entries
            ]
            for g in self.layout.groups
        ]
        self.arrays = [
            [
                whole[GUARD_BYTES:-GUARD_BYTES].reshape(entry.num_items, entry.item_bytes)
                for whole, entry in zip(wholes, group.entries, strict=True)
            ]
            for wholes, group in zip(self._whole, self.layout.groups, strict=True)
        ]
        sizes = [group.entries[0].num_items for group in self.layout.groups]
        self._is_idle = [np.ones(size, bool) for size in sizes]
        self._usable = [np.arange(size) % EVERY_NTH_IS_NEVER_USED != 0 for size in sizes]

    def memory(self) -> Memory:
        arrays = zip(self.layout.groups, self.arrays, strict=True)
        return Memory.from_arrays(self.layout, {group.name: found for group, found in arrays})

    def take(self, counts: dict[str, int], rng: np.random.Generator) -> Items | None:
        """Hand out scattered items, or None if there are not enough."""
        with self._lock:
            items = {}
            for name, count in counts.items():
                index = LAYOUT.index(name)
                free = np.flatnonzero(self._is_idle[index] & self._usable[index])
                if free.size < count:
                    return None
                items[name] = rng.permutation(free)[:count]
            for name, taken in items.items():
                self._is_idle[LAYOUT.index(name)][taken] = False
            return items

    def give(self, items: Items) -> None:
        """Take items back; their bytes are overwritten at once and must stay so."""
        for name, taken in items.items():
            for entry in self.arrays[LAYOUT.index(name)]:
                entry[taken] = self.idle
        with self._lock:
            for name, taken in items.items():
                self._is_idle[LAYOUT.index(name)][taken] = True

    def check(self) -> None:
        """Look at every byte that nobody may write: guards, unused items, items given back."""
        self.checks += 1
        with self._lock:
            for index, group in enumerate(self.layout.groups):
                for number, entry in enumerate(self.arrays[index]):
                    whole = self._whole[index][number]
                    guards = np.concatenate((whole[:GUARD_BYTES], whole[-GUARD_BYTES:]))
                    if (guards != self.idle).any():
                        self.problems.append(f"{group.name}.{number}: a guard was written")
                        whole[:GUARD_BYTES] = whole[-GUARD_BYTES:] = self.idle
                    wrong = (entry != self.idle).any(axis=1) & self._is_idle[index]
                    if wrong.any():
                        where = np.flatnonzero(wrong).tolist()
                        self.problems.append(f"{group.name}.{number}: idle items {where} changed")
                        entry[wrong] = self.idle

    def fill(self, room: int, items: Items, name: str, part: slice, entries: range) -> None:
        """Write a room's content to the items of some positions."""
        index = LAYOUT.index(name)
        for entry in entries:
            whole = content(room, index, entry, items[name].size)
            self.arrays[index][entry][items[name][part]] = whole[part]

    def judge(self, room: int, items: Items, *, is_whole: bool) -> None:
        """Compare destination items with the room's content; a failed one may lack some."""
        for name, taken in items.items():
            index = LAYOUT.index(name)
            for number, entry in enumerate(self.arrays[index]):
                found, right = entry[taken], content(room, index, number, taken.size)
                wrong = found != right
                if not is_whole:
                    wrong &= found != self.idle
                if wrong.any():
                    values = np.unique(found[wrong])[:8].tolist()
                    text = f"room {room} {name}.{number}: {int(wrong.sum())} wrong bytes {values}"
                    self.problems.append(f"{text}, {'received' if is_whole else 'failed'}")
