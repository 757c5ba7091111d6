"""Where a sliding-window layer's keys and values are read.

A hybrid model's window layers have a pool of their own, smaller than that of the full-attention
layers, with its own slot numbers. SGLang's `torch_native` backend writes to the window pool's slots
but reads with the full pool's: right only as long as both pools hand out the same numbers, silently
wrong tokens afterwards, and an index error beyond the end of the smaller pool.
"""

from collections.abc import Callable
from typing import Any

import torch


def attend(original: Callable[..., Any], backend: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `_run_sdpa_forward_{extend,decode}` with a window layer's own slots.

    `args` begin with query, output, K cache, V cache, the (requests, context) table of full-pool
    slots, the rows of this batch (B,), and the sequence lengths (B,).

    Source: sglang 0.5.23 srt/layers/attention/torch_native_backend.py.
    """
    if kwargs.get("sliding_window_size") is None or not backend.use_sliding_window_kv_pool:
        return original(backend, *args, **kwargs)
    query, output, k_cache, v_cache, table, rows, lengths, *rest = args
    used = table[rows, : int(lengths.max())].long()
    slots = backend.token_to_kv_pool.translate_loc_from_full_to_swa(used)
    own_rows = torch.arange(len(rows))
    return original(
        backend, query, output, k_cache, v_cache, slots, own_rows, lengths, *rest, **kwargs
    )
