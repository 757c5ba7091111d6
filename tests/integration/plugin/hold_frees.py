"""Hold and release frees of SGLang's allocators; prints sizes as JSON."""

import json
import sys
from typing import Any

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

from prfaas_plugin.layerwise.held_frees import HeldFrees

SIZE = 64


class Pool(BaseSWAKVPool):
    """As much of a pool as the allocator for sliding windows asks for."""

    full_kv_pool = swa_kv_pool = None
    swa_req_ring_size = None

    def __init__(self) -> None:
        pass

    def register_mapping(self, mapping: torch.Tensor) -> None:
        self.full_to_swa_index_mapping = mapping

    def translate_loc_from_full_to_swa(self, indices: torch.Tensor) -> torch.Tensor:
        return self.full_to_swa_index_mapping[indices]


Pool.__abstractmethods__ = frozenset()


def allocators() -> dict[str, Any]:
    options = {"dtype": torch.float32, "device": "cpu", "kvcache": None, "need_sort": False}
    window = options | {"kvcache": Pool(), "size_swa": SIZE, "page_size": 1}
    return {
        "token": TokenToKVPoolAllocator(SIZE, **options),
        "paged": PagedTokenToKVPoolAllocator(SIZE, page_size=4, **options),
        "window": SWATokenToKVPoolAllocator(SIZE, **window),
    }


def sizes_of(allocator: Any) -> dict[str, int]:
    if isinstance(allocator, SWATokenToKVPoolAllocator):
        full, window = allocator.full_available_size(), allocator.swa_available_size()
        return {"window": window, "window_full": full}
    return {"": allocator.available_size()}


def run(allocator: Any) -> tuple[list[dict[str, int]], list[int]]:
    sizes = [sizes_of(allocator)]
    tokens = allocator.alloc(12)
    sizes.append(sizes_of(allocator))
    held = HeldFrees(allocator)
    # As the prefix cache gives back what it has already: a run of whole pages.
    allocator.free_segment(tokens[:8], start_pos=0)
    held.end(keep=True)
    assert held
    pages = held.pages(of_window=False).tolist()
    sizes.append(sizes_of(allocator))
    held.release(only_window=True)
    sizes.append(sizes_of(allocator))
    held.release()
    held.release()
    sizes.append(sizes_of(allocator))
    assert not held
    assert allocator.free_group is None
    given_back = HeldFrees(allocator)
    allocator.free_segment(tokens[8:], start_pos=0)
    given_back.end(keep=False)
    assert sizes_of(allocator) == sizes[0]
    return sizes, pages


def main() -> None:
    found: dict[str, Any] = {}
    for name, allocator in allocators().items():
        sizes, pages = run(allocator)
        for key in sizes[0]:
            found[key or name] = {"sizes": [size[key] for size in sizes], "pages": pages}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
