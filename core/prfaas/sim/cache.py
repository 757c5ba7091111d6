"""Prefix caches of simulated nodes, and a directory of who holds what."""

from collections import OrderedDict

from prfaas.workload.chain import Chain

_NOBODY: dict["PrefixCache", None] = {}


class CacheDirectory:
    """Which caches of a pool can be reused from at which prefix."""

    def __init__(self) -> None:
        self._holders: dict[int, dict[PrefixCache, None]] = {}

    def add(self, prefix: int, cache: "PrefixCache") -> None:
        """Note that the cache can be reused from at the prefix."""
        self._holders.setdefault(prefix, {})[cache] = None

    def discard(self, prefix: int, cache: "PrefixCache") -> None:
        """Note that it no longer can."""
        holders = self._holders.get(prefix)
        if holders is not None:
            holders.pop(cache, None)
            if not holders:
                del self._holders[prefix]

    def longest(self, chain: Chain, prompt_tokens: int) -> tuple[int, "dict[PrefixCache, None]"]:
        """Return the longest prefix of a prompt that anyone holds, in tokens, and who."""
        holders = self._holders
        if not holders:
            return 0, _NOBODY
        for prefix, tokens in reversed(chain):
            if tokens < prompt_tokens and prefix in holders:
                return tokens, holders[prefix]
        return 0, _NOBODY


class PrefixCache:
    """Prefixes that a node (or the nodes of a region together) kept; least recently used go first.

    `nodes` is how many nodes the cache is spread over.
    With `stateful`, a prefix is reusable only where a state was kept: at the end of a prompt's
    chain and at multiples of `checkpoint_tokens` (0: nowhere else).

    Source: PrfaaS §3.2.
    """

    def __init__(
        self,
        capacity_tokens: float,
        directory: CacheDirectory,
        *,
        stateful: bool,
        checkpoint_tokens: int = 0,
        nodes: int = 1,
    ) -> None:
        self.used_tokens = 0
        self._nodes = nodes
        self._capacity_tokens = capacity_tokens
        self._directory = directory
        self._stateful = stateful
        self._checkpoint_tokens = checkpoint_tokens
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._reusable: set[int] = set()

    def match(self, chain: Chain, prompt_tokens: int) -> int:
        """Return how many leading tokens of a prompt need not be computed: less than all."""
        reusable = self._reusable
        if not reusable:
            return 0
        for prefix, tokens in reversed(chain):
            if prefix in reusable and tokens < prompt_tokens:
                return tokens
        return 0

    def insert(self, chain: Chain) -> None:
        """Keep a prompt that was computed, or moved here."""
        if not chain or self._capacity_tokens <= 0:
            return
        before = 0
        sizes = []
        for prefix, tokens in chain:
            sizes.append((prefix, tokens - before))
            before = tokens
            if self._keeps_state_at(tokens) or prefix == chain[-1][0]:
                self._keep(prefix)
        # Tail first: the head of a prompt is used last and evicted last.
        for prefix, size in reversed(sizes):
            if prefix in self._sizes:
                self._sizes.move_to_end(prefix)
            else:
                self._sizes[prefix] = size
                self.used_tokens += size
        while self.used_tokens > self._capacity_tokens:
            self._evict()

    def lose_node(self) -> None:
        """Lose what a node held that died: all, or of a cache of many nodes its part.

        What was used least recently stands for that part.
        """
        kept_tokens = self.used_tokens * (self._nodes - 1) // self._nodes
        while self.used_tokens > kept_tokens:
            self._evict()

    def hide(self) -> None:
        """Be in the directory no more: the only node leaves, and nothing new comes here."""
        if self._nodes == 1:
            for prefix in self._reusable:
                self._directory.discard(prefix, self)
            self._directory = CacheDirectory()

    def _keeps_state_at(self, tokens: int) -> bool:
        if not self._stateful:
            return True
        return bool(self._checkpoint_tokens) and tokens % self._checkpoint_tokens == 0

    def _keep(self, prefix: int) -> None:
        if prefix not in self._reusable:
            self._reusable.add(prefix)
            self._directory.add(prefix, self)

    def _evict(self) -> None:
        prefix, size = self._sizes.popitem(last=False)
        self.used_tokens -= size
        if prefix in self._reusable:
            self._reusable.discard(prefix)
            self._directory.discard(prefix, self)
