"""What layer-wise sending asks of SGLang's allocators and pools; prints it as JSON."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.disaggregation.base.conn import StateType
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.layers.radix_linear_attention import RadixLinearAttention
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.memory_pool import (
    DSATokenToKVPool,
    HybridLinearKVPool,
    MHATokenToKVPool,
    MLATokenToKVPool,
)
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from prfaas_plugin.layerwise import hooks
from prfaas_plugin.layerwise.entry_map import UnsupportedPoolError, parts_by_layer
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


def held_frees() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, allocator in allocators().items():
        sizes, pages = run(allocator)
        for key in sizes[0]:
            found[key or name] = {"sizes": [size[key] for size in sizes], "pages": pages}
    return found


def pool(kind: type, **attributes: Any) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(attributes)
    return made


def kv_args(num_entries: int, **changes: Any) -> SimpleNamespace:
    values = {"kv_item_lens": [8] * num_entries, "kv_layer_ids": [], "state_types": []}
    return SimpleNamespace(**(values | changes))


def pools() -> dict[str, tuple[SimpleNamespace, Any]]:
    plain = {"start_layer": 0, "layer_num": 3}
    full = pool(MHATokenToKVPool, **plain)
    mamba = {"state_types": [StateType.MAMBA], "state_item_lens": [[4, 0, 4, 4]]}
    mamba["state_layer_ids"] = [[0, 1, 0, 1]]
    window = {"state_types": [StateType.SWA], "state_item_lens": [[8] * 4]}
    layers = {0: (0, True), 1: (0, False), 2: (1, True)}
    swa = pool(SWAKVPool, full_kv_pool=full, swa_kv_pool=full, layers_mapping=layers)
    return {
        "dense": (kv_args(6), full),
        "latent": (kv_args(3), pool(MLATokenToKVPool, **plain)),
        "hybrid": (
            kv_args(2, kv_layer_ids=[2, 2], **mamba),
            pool(HybridLinearKVPool, full_kv_pool=full),
        ),
        "window": (kv_args(2, **window), swa),
        "odd length": (kv_args(5), full),
        "other pool": (kv_args(6), pool(DSATokenToKVPool, **plain)),
    }


def layer_parts() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (arguments, kind) in pools().items():
        try:
            parts = parts_by_layer(arguments, kind)
        except UnsupportedPoolError as error:
            found[name] = str(error)
            continue
        found[name] = {
            f"{key.kind}.{key.layer_id}": [[p.group, *p.entries] for p in of_layer]
            for key, of_layer in parts.items()
        }
    return found


class Breaking:
    """A pipeline, and its forward, that raises in one method and notes what is called."""

    def __init__(self, breaks: str = "") -> None:
        self.breaks = breaks
        self.called: list[str] = []
        self.pipeline = self
        self.depth = 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.called.append(name)
            if name == self.breaks:
                raise RuntimeError(name)
            return self if name in ("forward", "hold") else None

        return call


def hook_calls(breaks: str) -> list[Any]:
    """Run all hooks around functions that return what they are given; return that and the calls."""
    pipeline = Breaking(breaks)
    manager = SimpleNamespace(pipeline=pipeline)
    scheduler = SimpleNamespace(
        disaggregation_mode=DisaggregationMode.PREFILL,
        disagg_prefill_bootstrap_queue=SimpleNamespace(kv_manager=manager),
    )
    mode = SimpleNamespace(is_extend=lambda: True)
    batch = SimpleNamespace(forward_mode=mode)
    layer = pool(RadixAttention, layer_id=3)

    def attention(backend: Any, *args: Any) -> str:
        if backend == "outer":
            hooks._attention(attention, "inner", *args)
        return "attention"

    def run_batch(*_: Any) -> str:
        return "batch, " + hooks._attention(attention, "outer", layer)

    sender = SimpleNamespace(kv_mgr=manager)
    req = SimpleNamespace(disagg_kv_sender=sender, bootstrap_room=1, finished=lambda: False)
    results = [
        hooks._run_batch(run_batch, scheduler, batch),
        hooks._checkpoint(lambda *_: "cached", "cache", req),
    ]
    return [*results, pipeline.called]


def layer_keys() -> dict[str, Any]:
    attention, linear = pool(RadixAttention, layer_id=3), pool(RadixLinearAttention, layer_id=4)
    return {
        "by position": hooks.layer_key(("q", "k", "v", attention), {}),
        "by name": hooks.layer_key((), {"layer": linear, "mixed_qkv": 1}),
        "mixer": hooks.layer_key(("mixer", "hidden"), {"layer_id": 5}),
        "nothing": hooks.layer_key(("q",), {}),
    }


POINTS = ("", "start", "forward", "layer_written", "end", "hold", "keep")


def main() -> None:
    found = {
        "held_frees": held_frees(),
        "layer_parts": layer_parts(),
        "hooks": {point: hook_calls(point) for point in POINTS},
        "layer_keys": layer_keys(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
