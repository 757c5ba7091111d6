"""What SGLang's own prefix tree says is before a node, with our hook; and the names of pages, ours
beside its own. Printed as JSON.

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

from prfaas.blocks.page_hashes import page_hashes
from prfaas_plugin import pool_hooks

#: Page size, `cache_salt`, `extra_key`.
SALTS = [(1, "", ""), (4, "", ""), (4, "salt", ""), (4, "", "key"), (1, "salt", "kéy")]


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
    found += [_ours(tokens, *salts) for salts in SALTS]
    expected = [hashes[:0], hashes[:5], hashes[:9]]
    print(json.dumps({"found": found, "expected": expected + [_theirs(tokens, *s) for s in SALTS]}))


def _ours(tokens: "array[int]", page_tokens: int, salt: str, key: str) -> list[str]:
    raw = array("I", tokens).tobytes()
    return page_hashes(raw, page_tokens, cache_salt=salt, extra_key=key)


def _theirs(tokens: "array[int]", page_tokens: int, salt: str, key: str) -> list[str]:
    whole = tokens[: len(tokens) - len(tokens) % page_tokens]
    named = RadixKey(whole, key or None, cache_salt=salt or None)
    return list(get_storage_hash_str(named, None, page_size=page_tokens))


if __name__ == "__main__":
    main()
