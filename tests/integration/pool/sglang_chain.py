"""What SGLang's own prefix tree says is before a node, with our hook; printed as JSON.

A process of its own: it needs the stand-ins of the CPU kit on its path.
"""

import json
import os
import sys
from array import array

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"

from prfaas_cpu.launch import STANDINS

sys.path.append(str(STANDINS))

import torch
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.rust_tree_core.adapter import RustUnifiedTreeCore
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.plugins.hook_registry import HookRegistry

from prfaas_plugin import pool_hooks


def main() -> None:
    """Hook, make a tree of two nodes, and ask it."""
    pool_hooks.install()
    HookRegistry.apply_hooks()
    tree = RustUnifiedTreeCore(
        CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=None,
            page_size=1,
            tree_components=(ComponentType.FULL,),
        )
    )
    cache = object.__new__(UnifiedRadixCache)
    cache.tree_core = tree
    tokens = array("q", range(100, 109))
    hashes = get_storage_hash_str(RadixKey(tokens), None, page_size=1)
    node = tree.root_node_handle(None)
    found = [cache.get_prefix_hash_values(node)]
    for start, end in ((0, 5), (5, 9)):
        key = RadixKey(tokens[start:end])
        inserted = tree.insert_host(node, key, torch.arange(end - start), hashes[start:end])
        node = inserted.inserted_host_node
        found.append(cache.get_prefix_hash_values(node))
    print(json.dumps({"found": found, "expected": [hashes[:0], hashes[:5], hashes[:9]]}))


if __name__ == "__main__":
    main()
