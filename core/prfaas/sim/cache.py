"""Prefix caches of simulated nodes, and a directory of who holds what."""

from prfaas.workload.chain import Chain
from prfaas.workload.prefix_hits import PrefixCache, Reuse

_NOBODY: dict["NodeCache", None] = {}


class CacheDirectory:
    """Which caches of a pool can be reused from at which prefix."""

    def __init__(self) -> None:
        self._holders: dict[int, dict[NodeCache, None]] = {}

    def add(self, prefix: int, cache: "NodeCache") -> None:
        """Note that the cache can be reused from at the prefix."""
        self._holders.setdefault(prefix, {})[cache] = None

    def discard(self, prefix: int, cache: "NodeCache") -> None:
        """Note that it no longer can."""
        holders = self._holders.get(prefix)
        if holders is not None:
            holders.pop(cache, None)
            if not holders:
                del self._holders[prefix]

    def longest(self, chain: Chain, prompt_tokens: int) -> tuple[int, "dict[NodeCache, None]"]:
        """Return the longest prefix of a prompt that anyone holds, in tokens, and who."""
        holders = self._holders
        if not holders:
            return 0, _NOBODY
        for prefix, tokens in reversed(chain):
            if tokens < prompt_tokens and prefix in holders:
                return tokens, holders[prefix]
        return 0, _NOBODY


class NodeCache(PrefixCache):
    """The cache of one node, or of `nodes` nodes together, that a directory knows of."""

    def __init__(
        self,
        capacity_tokens: float,
        directory: CacheDirectory,
        *,
        stateful: bool,
        checkpoint_tokens: int = 0,
        nodes: int = 1,
    ) -> None:
        super().__init__(
            Reuse.HYBRID if stateful else Reuse.PAGED,
            capacity_tokens=capacity_tokens,
            checkpoint_tokens=checkpoint_tokens,
        )
        self._nodes = nodes
        self._directory = directory

    def lose_node(self) -> None:
        """Lose what a node held that died: all, or of a cache of many nodes its part.

        What was used least recently stands for that part.
        """
        self._evict_to(self.used_tokens * (self._nodes - 1) // self._nodes)

    def hide(self) -> None:
        """Be in the directory no more: the only node leaves, and nothing new comes here."""
        if self._nodes == 1:
            for prefix in self._reusable:
                self._directory.discard(prefix, self)
            self._directory = CacheDirectory()

    def _on_kept(self, name: int) -> None:
        self._directory.add(name, self)

    def _on_lost(self, name: int) -> None:
        self._directory.discard(name, self)
