"""The layout of transferable memory: groups of entries that two peers must share."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError, TransferError
from prfaas.transfer.reasons import Reason
from prfaas.wire import limits

Items = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: `num_items` items of `item_bytes` bytes, one after another."""

    item_bytes: int
    num_items: int


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that are addressed by the same item indices and complete together."""

    name: str
    entries: tuple[Entry, ...]

    @property
    def num_items(self) -> int:
        """Items that every entry of the group has."""
        return min(entry.num_items for entry in self.entries)

    @property
    def item_bytes(self) -> int:
        """Bytes of one item over all entries."""
        return sum(entry.item_bytes for entry in self.entries)


@dataclass(frozen=True)
class Layout:
    """An ordered tuple of groups. Raises: ConfigError if it breaks a limit of the wire format."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        if len(set(names)) != len(names):
            raise ConfigError(f"layout: group names repeat: {names}")
        if not 0 < len(names) <= limits.MAX_GROUPS:
            raise ConfigError(f"layout: {len(names)} groups, allowed are 1 to {limits.MAX_GROUPS}")
        if sum(len(group.entries) for group in self.groups) > limits.MAX_ENTRIES:
            raise ConfigError(f"layout: more than {limits.MAX_ENTRIES} entries")
        for group in self.groups:
            _check_group(group)

    def digest(self) -> bytes:
        """Return 32 bytes that cover group names and item sizes, not item counts."""
        return hashlib.sha256(json.dumps(self.wire_groups()).encode()).digest()

    def wire_groups(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return what HELLO carries: per group its name and the `item_bytes` of its entries."""
        return tuple((g.name, tuple(e.item_bytes for e in g.entries)) for g in self.groups)

    def index(self, name: str) -> int:
        """Return the position of a group. Raises: TransferError."""
        for index, group in enumerate(self.groups):
            if group.name == name:
                return index
        known = [group.name for group in self.groups]
        raise TransferError(Reason.BAD_ITEMS, f"no group {name!r} in the layout, only {known}")

    def items(self, group: int, items: Items) -> Items:
        """Return a private, checked copy of item indices of a group. Raises: TransferError."""
        copy = np.array(items, dtype=np.int64, ndmin=1)
        limit = self.groups[group].num_items
        if copy.ndim != 1 or (copy.size and (copy.min() < 0 or copy.max() >= limit)):
            name = self.groups[group].name
            raise TransferError(Reason.BAD_ITEMS, f"{name}: items must be within 0..{limit - 1}")
        return copy

    def counts(self, by_name: Mapping[str, int]) -> tuple[int, ...]:
        """Return counts in group order, 0 for groups not named. Raises: TransferError."""
        counts = [0] * len(self.groups)
        for name, count in by_name.items():
            counts[self.index(name)] = int(count)
        return tuple(counts)

    def num_bytes(self, counts: tuple[int, ...]) -> int:
        """Return how many bytes so many items per group are, of all entries."""
        sizes = zip(self.groups, counts, strict=True)
        return sum(n * sum(entry.item_bytes for entry in group.entries) for group, n in sizes)

    def named(self, counts: tuple[int, ...]) -> dict[str, int]:
        """Return counts in group order by group name."""
        return {group.name: n for group, n in zip(self.groups, counts, strict=True)}

    def to_json(self) -> dict[str, Any]:
        """Return a value of JSON types."""
        return {
            "groups": [
                {"name": g.name, "entries": [[e.item_bytes, e.num_items] for e in g.entries]}
                for g in self.groups
            ]
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Layout":
        """Return the layout of a `to_json()` value. Raises: ConfigError."""
        try:
            groups = tuple(
                Group(str(g["name"]), tuple(Entry(int(b), int(n)) for b, n in g["entries"]))
                for g in value["groups"]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"layout: not a layout value: {error!r}") from error
        return cls(groups)


def _check_group(group: Group) -> None:
    if not 0 < len(group.name.encode()) <= limits.MAX_NAME_BYTES:
        raise ConfigError(f"layout: group name {group.name!r}: 1 to {limits.MAX_NAME_BYTES} bytes")
    if not group.entries:
        raise ConfigError(f"layout: group {group.name} has no entries")
    for entry in group.entries:
        if not 0 < entry.item_bytes <= limits.MAX_PAYLOAD_BYTES:
            raise ConfigError(f"layout: group {group.name}: item of {entry.item_bytes} bytes")
        if not 0 < entry.num_items <= limits.U32_MAX:
            raise ConfigError(f"layout: group {group.name}: {entry.num_items} items")


def mismatch(ours: Layout, theirs: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    """Return one line on the first difference between our layout and a peer's HELLO."""
    mine = ours.wire_groups()
    for (name, sizes), (their_name, their_sizes) in zip(mine, theirs, strict=False):
        if name != their_name:
            return f"group {name} here, {their_name} there"
        if len(sizes) != len(their_sizes):
            return f"{name}: {len(sizes)} entries here, {len(their_sizes)} there"
        for index, (size, their_size) in enumerate(zip(sizes, their_sizes, strict=True)):
            if size != their_size:
                return f"{name}[{index}]: items of {size} bytes here, {their_size} there"
    if len(mine) != len(theirs):
        return f"{len(mine)} groups here, {len(theirs)} there"
    return "digests differ"
