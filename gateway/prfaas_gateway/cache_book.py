"""What the prefill nodes' caches hold, as they tell it themselves."""

from collections.abc import Iterable
from dataclasses import dataclass

from prfaas.blocks import HashedPrompt
from prfaas.cache_events.feed_batch import FeedBatch, FeedShape
from prfaas.cache_events.node_cache import MAX_BLOCKS, NodeCache
from prfaas.records import NodeRecord

MAX_BLOCKS_IN_ALL = 1 << 21
"""Of all nodes together: 134 million tokens, some 300 MB."""
_LEAST_BLOCKS = 1 << 12


@dataclass(slots=True)
class _Known:
    session: str  # of the engine, when its feed began
    cache: NodeCache


class CacheBook:
    """The caches by node name. One event loop only."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._max_blocks = MAX_BLOCKS

    def cursor(self, node: NodeRecord) -> tuple[str, int]:
        """Return the last batch that is known of a node's feed; ("", 0): none."""
        known = self._known.get(node.name)
        if known is None or known.session != node.session or not known.cache.is_whole:
            return "", 0
        return known.cache.session, known.cache.seq

    def begin(self, node: NodeRecord, shape: FeedShape) -> None:
        """Take the shape that a node's feed begins with."""
        known = self._known.get(node.name)
        if known is None or known.session != node.session or known.cache.shape != shape:
            cache = NodeCache(shape, max_blocks=self._max_blocks)
            self._known[node.name] = _Known(node.session, cache)

    def note(self, node: NodeRecord, batch: FeedBatch) -> None:
        """Take a node's next batch. Raises: ProtocolError: one before it is missing."""
        known = self._known.get(node.name)
        if known is not None:
            known.cache.apply(batch)

    def match(self, node: NodeRecord, prompt: HashedPrompt) -> int | None:
        """Return how many tokens of a prompt a node need not compute; None: it did not tell."""
        known = self._known.get(node.name)
        if known is None or known.session != node.session or not known.cache.is_whole:
            return None
        return known.cache.match(prompt)

    def blocks(self, node: str) -> int | None:
        """Return how many blocks are known of a node, None if it does not tell."""
        known = self._known.get(node)
        return len(known.cache) if known else None

    def retain(self, nodes: Iterable[str]) -> None:
        """Forget all other nodes, and share the memory among these; it is theirs once they begin
        anew."""
        kept = frozenset(nodes)
        self._known = {name: known for name, known in self._known.items() if name in kept}
        share = MAX_BLOCKS_IN_ALL // max(len(kept), 1)
        self._max_blocks = max(min(share, MAX_BLOCKS), _LEAST_BLOCKS)
