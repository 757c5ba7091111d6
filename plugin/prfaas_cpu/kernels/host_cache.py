"""Copies between SGLang's memory and its host cache (HiCache) in torch, without pinned memory.

Source: sglang 0.5.23 srt/mem_cache/pool_host, which has these for GPUs only.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import torch

_POOL_HOST = "sglang.srt.mem_cache.pool_host"
MODULES = (f"{_POOL_HOST}.mha", f"{_POOL_HOST}.mla", f"{_POOL_HOST}.mamba")
PINNING = (f"{_POOL_HOST}.base.HostKVCache.__init__", f"{_POOL_HOST}.mamba.MambaPoolHost.__init__")


def copy_layers(
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,  # noqa: ARG001 - SGLang's signature
) -> None:
    """Copy rows of each layer, (rows, ...) to (rows, ...)."""
    for src, dst in zip(src_layers, dst_layers, strict=True):
        dst[dst_indices.long()] = src[src_indices.long()]


def gather_pages(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copy rows of all layers into pages: (rows, ...) to (pages, layers, page_size, ...).

    `src_ptrs` has the layers that go to the first of `dst_ptrs`, then those to the second.
    """
    num_layers = len(src_ptrs) // len(dst_ptrs)
    pages = _pages(dst_indices, page_size)
    for buffer, dst in enumerate(dst_ptrs):
        for layer in range(num_layers):
            rows = src_ptrs[buffer * num_layers + layer][src_indices.long()]
            dst[pages, layer] = rows.reshape(len(pages), *dst.shape[2:])


def scatter_pages(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy one layer of pages back into rows; the reverse of `gather_pages`."""
    pages = _pages(src_indices, page_size)
    for src, dst in zip(src_ptrs, dst_ptrs, strict=True):
        dst[dst_indices.long()] = src[pages, layer_id].reshape(len(dst_indices), *dst.shape[1:])


COPIES = {
    "transfer_kv_direct": copy_layers,
    "transfer_kv_all_layer_direct_lf_pf": gather_pages,
    "transfer_kv_per_layer_direct_pf_lf": scatter_pages,
}
"""Names that SGLang binds on GPUs only, and what stands there instead."""


def without_pinning(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take ordinary memory: a torch without CUDA can pin none. A hook before the constructors."""
    return args, kwargs | {"pin_memory": False}


def bind_copies() -> int:
    """Put the copies where SGLang looks for its own; return how many were missing."""
    missing = 0
    for module in map(importlib.import_module, MODULES):
        for name, copy in COPIES.items():
            if not hasattr(module, name):
                setattr(module, name, copy)
                missing += 1
    return missing


def _pages(indices: torch.Tensor, page_size: int) -> torch.Tensor:
    return indices.long()[::page_size] // page_size
