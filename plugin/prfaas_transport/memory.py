"""Memory that lanes send from and receive into."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.transfer.layout import Entry, Group, Items, Layout

FEW_ITEMS = 128


class TransferMemory(Protocol):
    """What the nodes need of memory; called on the I/O thread under the node's lock."""

    def source(self, group: int, entry: int, items: Items) -> list[memoryview]:
        """Return the bytes of these items, in order, to be read."""
        ...

    def destination(self, group: int, entry: int, items: Items) -> list[memoryview]:
        """Return the bytes of these items, in order, to be written."""
        ...


class Memory:
    """CPU memory of a layout: per group name, one base pointer or array for each entry.

    An array is C-contiguous and holds `num_items * item_bytes` bytes or more; it is kept alive.
    Memory behind a pointer must outlive the node. Views alias the memory, nothing is copied.
    """

    def __init__(self, layout: Layout, entries: Mapping[str, Sequence[int | NDArray[Any]]]) -> None:
        self.layout = layout
        names = {group.name for group in layout.groups}
        if set(entries) != names:
            raise ConfigError(f"memory: groups {sorted(entries)}, layout has {sorted(names)}")
        self._views = [_group_views(group, entries[group.name]) for group in layout.groups]

    @classmethod
    def from_pointers(cls, layout: Layout, pointers: Mapping[str, Sequence[int]]) -> "Memory":
        """Return memory behind raw pointers, one per entry of each group."""
        return cls(layout, pointers)

    @classmethod
    def from_arrays(cls, layout: Layout, arrays: Mapping[str, Sequence[NDArray[Any]]]) -> "Memory":
        """Return memory of numpy arrays, one per entry of each group."""
        return cls(layout, arrays)

    def source(self, group: int, entry: int, items: Items) -> list[memoryview]:
        """Return the bytes of these items; neighbours in memory share a view."""
        view = self._views[group][entry]
        size = self.layout.groups[group].entries[entry].item_bytes
        return [view[first * size : end * size] for first, end in item_runs(items)]

    def destination(self, group: int, entry: int, items: Items) -> list[memoryview]:
        """Return the bytes of these items; neighbours in memory share a view."""
        return self.source(group, entry, items)


def item_runs(items: Items) -> list[tuple[int, int]]:
    """Return the (first, end) of runs of consecutive items.

    >>> item_runs(np.array([3, 4, 5, 9, 7, 8]))
    [(3, 6), (9, 10), (7, 9)]
    """
    if items.size <= FEW_ITEMS:
        return _few_runs(items.tolist())
    breaks = np.flatnonzero(np.diff(items) != 1)
    firsts = items[np.concatenate(([0], breaks + 1))].tolist()
    lasts = items[np.concatenate((breaks, [items.size - 1]))].tolist()
    return [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def _few_runs(items: list[int]) -> list[tuple[int, int]]:
    """Return the runs of a few items, which numpy would take longer for."""
    runs = []
    first = end = -1
    for item in items:
        if item != end:
            if end >= 0:
                runs.append((first, end))
            first = item
        end = item + 1
    if end >= 0:
        runs.append((first, end))
    return runs


def _group_views(group: Group, sources: Sequence[int | NDArray[Any]]) -> list[memoryview]:
    if len(sources) != len(group.entries):
        text = f"{len(sources)} arrays or pointers, layout has {len(group.entries)} entries"
        raise ConfigError(f"memory: group {group.name}: {text}")
    pairs = zip(group.entries, sources, strict=True)
    return [_entry_view(group.name, entry, source) for entry, source in pairs]


def _entry_view(name: str, entry: Entry, source: int | NDArray[Any]) -> memoryview:
    num_bytes = entry.item_bytes * entry.num_items
    if not isinstance(source, np.ndarray):
        if not source:
            raise ConfigError(f"memory: group {name}: null pointer")
        return memoryview((ctypes.c_uint8 * num_bytes).from_address(int(source))).cast("B")
    if not source.flags.c_contiguous or source.nbytes < num_bytes:
        text = f"array of {source.nbytes} bytes, {num_bytes} contiguous bytes are needed"
        raise ConfigError(f"memory: group {name}: {text}")
    return source.reshape(-1).view(np.uint8).data[:num_bytes]
