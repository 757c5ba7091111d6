"""Index arrays of a prefill chunk: which pages and states go to which positions of the grant.

Source: sglang 0.5.23 srt/disaggregation/prefill.py (`_send_kv_chunk`), for the arithmetic.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas_plugin.geometry import KV, state_group
from prfaas_plugin.layerwise.counters import Fallback
from prfaas_plugin.layerwise.entry_map import Parts, UnsupportedPoolError, parts_by_layer
from prfaas_plugin.layerwise.readiness import Readiness
from prfaas_plugin.layerwise.send_plan import SendPlan

Indices = NDArray[np.int64]

_MAMBA = "mamba"


class UnsupportedEngineError(Exception):
    """Layer-wise sending does not hold for this engine at all."""

    def __init__(self, reason: Fallback, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class SendPlanner:
    """Reads SGLang's tables; for the scheduler's thread.

    `parts` is what layer events release, `states` are the state components in it with their groups.
    """

    def __init__(
        self,
        scheduler: Any,
        *,
        parts: Parts,
        states: Sequence[tuple[Any, str]],
        readiness: Readiness,
    ) -> None:
        self.parts = parts
        self.allocator = scheduler.token_to_kv_pool_allocator
        self._scheduler = scheduler
        self._rows = scheduler.req_to_token_pool
        self._page_size = int(self.allocator.page_size)
        self._states = states
        self._readiness = readiness

    def plan(self, req: Any, position: int) -> SendPlan | None:
        """Return the plan of the chunk that is about to run, from `position` of the grant on.

        None if it completes no page. A last page that is not full waits for the next chunk.
        """
        prompt_tokens, base = len(req.origin_input_ids), int(req.disagg_decode_prefix_len)
        end = min(req.extend_end, prompt_tokens)
        is_last = end >= prompt_tokens
        stop = -(-(end - base) // self._page_size) if is_last else (end - base) // self._page_size
        if stop <= position:
            return None
        first = base + position * self._page_size
        row = self._rows.req_to_token[req.kv.req_pool_idx]
        tokens = row[first : min(end, base + stop * self._page_size)]
        items = {KV: self._pages(self.allocator.translate_kv_indices_for_transfer(tokens))}
        if is_last:
            items |= {name: self._state(kind, req, row, end) for kind, name in self._states}
        return SendPlan(req.bootstrap_room, start=position, items=items, parts=self.parts)

    def _state(self, state_type: Any, req: Any, row: Any, end: int) -> Indices:
        if state_type.value == _MAMBA:
            slots = self._rows.req_index_to_mamba_index_mapping[req.kv.req_pool_idx]
            slots = self._rows.translate_mamba_indices(slots)
            return self._readiness.host_copy(slots.reshape(-1))
        window = end - int(self._scheduler.sliding_window_size)
        first = max(int(req.disagg_decode_prefix_len), window) // self._page_size * self._page_size
        return self._pages(self.allocator.translate_swa_indices_for_transfer(row[first:end]))

    def _pages(self, tokens: Any) -> Indices:
        return self._readiness.host_copy(tokens[:: self._page_size] // self._page_size)


def planner_of(scheduler: Any, manager: Any, readiness: Readiness) -> SendPlanner:
    """Return the planner of an engine. Raises: UnsupportedEngineError."""
    check_engine(scheduler, manager)
    kv_args = manager.kv_args
    try:
        parts = parts_by_layer(kv_args, scheduler.token_to_kv_pool_allocator.get_kvcache())
    except UnsupportedPoolError as error:
        raise UnsupportedEngineError(Fallback.UNSUPPORTED_POOL, str(error)) from None
    by_layer = {part.group for of_layer in parts.values() for part in of_layer}
    states = [
        (state_type, name)
        for index, state_type in enumerate(kv_args.state_types)
        if (name := state_group(index, state_type)) in by_layer
    ]
    return SendPlanner(scheduler, parts=parts, states=states, readiness=readiness)


def check_engine(scheduler: Any, manager: Any) -> None:
    """Raises: UnsupportedEngineError if something of this engine is not known to be sound here."""
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    allocator, cache = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
    known = (TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator, SWATokenToKVPoolAllocator)
    if type(allocator) not in known or getattr(allocator, "swa_req_ring", False):
        _refuse(Fallback.UNSUPPORTED_POOL, f"allocator {type(allocator).__name__}")
    if type(cache) is not UnifiedRadixCache:
        _refuse(Fallback.UNSUPPORTED_CACHE, f"prefix cache {type(cache).__name__}")
    if not scheduler.spec_algorithm.is_none():
        _refuse(Fallback.SPECULATIVE, "draft layers have numbers of their own")
    args = scheduler.server_args
    if args.enable_two_batch_overlap or args.enable_pdmux:
        _refuse(Fallback.UNSUPPORTED_SCHEDULE, "a layer runs in several parts")
    is_sharded = manager.kv_shard_size > 1 or manager.enable_all_cp_ranks_for_transfer
    if args.pp_size > 1 or is_sharded or manager.is_dummy_cp_rank:
        _refuse(Fallback.UNSUPPORTED_PARALLELISM, "this rank sends a share of the pages only")


def _refuse(reason: Fallback, detail: str) -> None:
    raise UnsupportedEngineError(reason, detail)
