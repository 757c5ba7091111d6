"""What SGLang must tell a storage that finds pages by their place in a chain."""

import logging
from typing import Any

log = logging.getLogger("prfaas.plugin")

_PREFIX_HASHES = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.get_prefix_hash_values"


def install() -> None:
    """Register the hook; it changes only what is passed to a storage with requests to fetch."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_PREFIX_HASHES, with_own_hashes, HookType.AFTER)


def with_own_hashes(hashes: list[str], cache: Any, node_id: Any) -> list[str]:
    """Add the pages of the node itself to those of its ancestors.

    A fetch asks for the pages after a node that the engine has; SGLang passes the hashes of the
    node's ancestors as "all before", without the node's own. It gets a new list.

    Source: sglang 0.5.23 srt/managers/scheduler.py (`_prefetch_kvcache`), unified_tree_core.py.
    """
    try:
        return [*hashes, *cache.tree_core.get_hash_values(node_id)]
    # Outermost frame of a hook: what it raises would end the scheduler. Without it, a miss.
    except Exception:
        log.exception("prefix pool: the hashes of a cached prefix are unknown")
        return hashes
