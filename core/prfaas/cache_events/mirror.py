"""A prefix cache as its events tell it, and what of a prompt it can reuse."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prfaas.cache_events.events import (
    BlockRemoved,
    BlockStored,
    CacheEvent,
    CacheShape,
    Cleared,
    StateRemoved,
    StateStored,
    WindowRemoved,
    WindowStored,
)

_Edge = tuple[int | None, tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class _Block:
    parent: int | None
    tokens: tuple[int, ...]
    salt: str

    @property
    def edge(self) -> _Edge:
        return self.parent, self.tokens, self.salt


class CacheMirror:
    """Blocks, states and windows. `apply` every event, in order; ask with `reusable_tokens`."""

    def __init__(self, shape: CacheShape) -> None:
        self.shape = shape
        self._blocks: dict[int, _Block] = {}
        self._edges: dict[_Edge, int] = {}
        self._states: set[int] = set()
        self._windowless: set[int] = set()

    @property
    def num_blocks(self) -> int:
        """Blocks that are there."""
        return len(self._blocks)

    @property
    def num_states(self) -> int:
        """State checkpoints that are there."""
        return len(self._states)

    def apply(self, event: CacheEvent) -> None:
        """Take one event; what is removed and not there is ignored."""
        match event:
            case BlockStored():
                self._store(event)
            case BlockRemoved():
                for name in event.hashes:
                    block = self._blocks.pop(name, None)
                    if block is not None and self._edges.get(block.edge) == name:
                        del self._edges[block.edge]
                self._windowless.difference_update(event.hashes)
            case StateStored():
                self._states.update(event.hashes)
            case StateRemoved():
                self._states.difference_update(event.hashes)
            case WindowStored():
                self._windowless.difference_update(event.hashes)
            case WindowRemoved():
                self._windowless.update(name for name in event.hashes if name in self._blocks)
            case Cleared():
                for held in (self._blocks, self._edges, self._states, self._windowless):
                    held.clear()

    def _store(self, event: BlockStored) -> None:
        size = len(event.tokens) // len(event.hashes)
        parent = event.parent
        for index, name in enumerate(event.hashes):
            block = _Block(parent, event.tokens[index * size : (index + 1) * size], event.salt)
            self._blocks[name] = block
            self._edges[block.edge] = name
            self._windowless.discard(name)
            parent = name

    def matched(self, prompt: Sequence[int], *, salt: str = "") -> list[int]:
        """Return the names of the blocks that hold the longest prefix of a prompt, in order."""
        size = self.shape.block_tokens
        names: list[int] = []
        parent: int | None = None
        for start in range(0, len(prompt) - size + 1, size):
            name = self._edges.get((parent, tuple(prompt[start : start + size]), salt))
            if name is None:
                break
            names.append(name)
            parent = name
        return names

    def reusable_tokens(self, prompt: Sequence[int], *, salt: str = "") -> int:
        """Return how many tokens of a prompt the engine takes from its cache.

        Its last token is always computed: something has to give the first logits. A prefix can be
        reused where all its blocks are there, and the state after it where there are states, and
        the windows of the `window_tokens` before it where layers have one.
        """
        names = self.matched(prompt[:-1], salt=salt)
        best = since_gap = 0
        enough = -(-self.shape.window_tokens // self.shape.block_tokens)
        has_gap = False
        for count, name in enumerate(names, start=1):
            if name in self._windowless:
                has_gap, since_gap = True, 0
                continue
            since_gap += 1
            if (not has_gap or since_gap >= enough) and (
                not self.shape.stateful or name in self._states
            ):
                best = count
        return best * self.shape.block_tokens

    def snapshot(self) -> Iterator[CacheEvent]:
        """Yield events that make another mirror equal to this one."""
        yield Cleared()
        yield from self._runs()
        if self._states:
            yield StateStored(tuple(self._states))
        if self._windowless:
            yield WindowRemoved(tuple(self._windowless))

    def _runs(self) -> Iterator[BlockStored]:
        """Yield the blocks, each with those that follow it in the order of their coming."""
        names: list[int] = []
        tokens: list[int] = []
        first: _Block | None = None
        for name, block in self._blocks.items():
            if first is not None and (block.parent, block.salt) != (names[-1], first.salt):
                yield BlockStored(tuple(names), tuple(tokens), first.parent, first.salt)
                names, tokens, first = [], [], None
            first = first or block
            names.append(name)
            tokens += block.tokens
        if first is not None:
            yield BlockStored(tuple(names), tuple(tokens), first.parent, first.salt)
