"""A prefix pool as sets of tokens: slow, and too simple to be wrong."""

import hashlib
from collections.abc import Iterable

from prfaas.blocks.block_layout import KEY_BYTES, KV
from prfaas.blocks.entry import Entry

Prompt = tuple[int, ...]


def chain_of(prompt: Prompt) -> bytes:
    """Return the chain of a prompt of one-token pages."""
    keys = [hashlib.sha256(repr(prompt[: n + 1]).encode()) for n in range(len(prompt))]
    return b"".join(key.digest()[:KEY_BYTES] for key in keys)


class PoolModel:
    """What is stored, by the prefixes that its items belong to."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # by oid
        self._prompts: dict[Entry, Prompt] = {}

    @property
    def num_entries(self) -> int:
        return len(self._entries)

    def names(self, entries: Iterable[Entry], prompt: Prompt) -> None:
        """Remember which prompt entries were reserved for."""
        for entry in entries:
            self._prompts[entry] = prompt

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            assert entry.oid > max(self._entries, default=0)
            self._entries[entry.oid] = entry

    def remove(self, entry: Entry) -> None:
        if self._entries.get(entry.oid) is entry:
            del self._entries[entry.oid]

    def dying(self, entries: Iterable[Entry]) -> None:
        """Forget dropped entries, though a reader may still keep their blocks."""
        for entry in entries:
            self.remove(entry)

    def replace(self, entries: Iterable[Entry]) -> None:
        """Take equal entries in the place of all there are."""
        for entry in entries:
            self._prompts[entry] = self._prompts[self._entries[entry.oid]]
            self._entries[entry.oid] = entry

    def blocks(self) -> list[int]:
        return [block for entry in self._entries.values() for block in entry.blocks]

    def records(self) -> list[tuple[Entry, bytes]]:
        """Return entries as a restart finds them, each with the key of the page before it."""
        return [
            (entry, chain_of(self._prompts[entry][: entry.first])[-KEY_BYTES:])
            for entry in self._entries.values()
        ]

    def kv_pages(self, prompt: Prompt) -> int:
        return self.readable(prompt, KV, 0)

    def readable(self, prompt: Prompt, group: str, start: int) -> int:
        """Return how many pages from `start` on have items of a group and all KV before them."""
        limit = len(prompt) if group == KV else self.kv_pages(prompt)
        have = self._prefixes(group, prompt[:limit])
        end = 0 if group == KV else start
        while end < limit and prompt[: end + 1] in have:
            end += 1
        return max(0, end - start)

    def usable(self, prompt: Prompt, needed: dict[str, int], start: int) -> list[int]:
        """Return the lengths at which all needed states from `start` on are there."""
        kv = self.kv_pages(prompt)
        prefixes = {group: self._prefixes(group, prompt[:kv]) for group in needed}
        return [
            length
            for length in range(1, kv + 1)
            if (not needed or length > start)
            and all(
                prompt[:at] in prefixes[group]
                for group, trailing in needed.items()
                for at in range(max(start + 1, length - trailing + 1), length + 1)
            )
        ]

    def check_prefixes(self) -> None:
        """Every item's whole prefix has its KV."""
        have = self._prefixes(KV, None)
        for entry in self._entries.values():
            prompt = self._prompts[entry]
            missing = [n for n in range(1, entry.end + 1) if prompt[:n] not in have]
            assert not missing, f"{entry.group} without the KV of pages {missing}"

    def _prefixes(self, group: str, within: Prompt | None) -> set[Prompt]:
        """Return the prefixes that have an item; of states only those that end `within`."""
        found = set()
        for entry in self._entries.values():
            prompt = self._prompts[entry]
            if entry.group != group:
                continue
            if group != KV and within is not None and within[: entry.end] != prompt[: entry.end]:
                continue
            found |= {prompt[: at + 1] for at in range(entry.first, entry.end)}
        return found
