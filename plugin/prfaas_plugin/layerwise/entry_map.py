"""Which entries of the transfer layout are final once a layer has been computed.

Source: sglang 0.5.23 srt/disaggregation/utils.py (setup_state_kv_args, build_kv_layer_ids),
srt/mem_cache/memory_pool.py and swa_memory_pool.py (get_contiguous_buf_infos: all K, then all V).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from prfaas_plugin.geometry import KV, state_group


class Kind(StrEnum):
    """What of a layer was computed; a layer may have both."""

    ATTENTION = "attention"
    LINEAR = "linear"


class LayerKey(NamedTuple):
    """One event of a forward pass."""

    kind: Kind
    layer_id: int


class Part(NamedTuple):
    """Neighbouring entries of a group."""

    group: str
    entries: range


Parts = Mapping[LayerKey, tuple[Part, ...]]


class UnsupportedPoolError(Exception):
    """The pool's entries cannot be told apart by layer."""


def parts_by_layer(kv_args: Any, pool: Any) -> Parts:
    """Return what each layer's event releases; state components not in it are left to `send()`.

    Raises: UnsupportedPoolError.
    """
    entries: list[tuple[LayerKey, str, int]] = []
    kv_layers = _kv_layers(kv_args, pool)
    _check_length(KV, kv_layers, kv_args.kv_item_lens)
    entries += _entries(Kind.ATTENTION, KV, kv_layers, kv_args.kv_item_lens)
    for index, state_type in enumerate(kv_args.state_types):
        kind, layers = _state_layers(kv_args, pool, index)
        group, items = state_group(index, state_type), kv_args.state_item_lens[index]
        if layers:
            _check_length(group, layers, items)
            entries += _entries(kind, group, layers, items)
    return _joined(entries)


def _kv_layers(kv_args: Any, pool: Any) -> list[int]:
    from sglang.srt.mem_cache.memory_pool import (
        HybridLinearKVPool,
        MHATokenToKVPool,
        MLATokenToKVPool,
    )
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    plain = (MHATokenToKVPool, MLATokenToKVPool)
    if type(pool) is HybridLinearKVPool and type(pool.full_kv_pool) in plain:
        return list(kv_args.kv_layer_ids)
    if type(pool) is SWAKVPool and type(pool.full_kv_pool) is MHATokenToKVPool:
        return _window_layers(pool, is_window=False)
    if type(pool) in plain:
        layers = range(pool.start_layer, pool.start_layer + pool.layer_num)
        return list(layers) * (2 if type(pool) is MHATokenToKVPool else 1)
    raise UnsupportedPoolError(f"KV pool {type(pool).__name__}")


def _state_layers(kv_args: Any, pool: Any, index: int) -> tuple[Kind, list[int]]:
    from sglang.srt.disaggregation.base.conn import StateType
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    state_type = kv_args.state_types[index]
    if state_type == StateType.MAMBA:
        return Kind.LINEAR, list(kv_args.state_layer_ids[index] or ())
    is_plain_window = type(pool) is SWAKVPool and type(pool.swa_kv_pool) is MHATokenToKVPool
    if state_type == StateType.SWA and is_plain_window:
        return Kind.ATTENTION, _window_layers(pool, is_window=True)
    return Kind.ATTENTION, []


def _window_layers(pool: Any, *, is_window: bool) -> list[int]:
    """Return the layers of one of a `SWAKVPool`'s two pools, in its order, for K and then for V."""
    found = [
        (position, layer)
        for layer, (position, in_window) in pool.layers_mapping.items()
        if in_window == is_window
    ]
    return [layer for _, layer in sorted(found)] * 2


def _check_length(group: str, layers: Sequence[int], items: Sequence[int]) -> None:
    if len(layers) != len(items):
        raise UnsupportedPoolError(f"{group}: {len(items)} entries, {len(layers)} layer ids")


def _entries(
    kind: Kind, group: str, layers: Iterable[int], items: Sequence[int]
) -> list[tuple[LayerKey, str, int]]:
    """Return (event, group, entry); the layout leaves out entries that hold nothing."""
    held = [layer for layer, item in zip(layers, items, strict=True) if item]
    return [(LayerKey(kind, layer), group, index) for index, layer in enumerate(held)]


def _joined(entries: list[tuple[LayerKey, str, int]]) -> Parts:
    """Return the entries by event, in order of the layers, neighbours joined."""
    parts: dict[LayerKey, list[Part]] = {}
    for key, group, index in sorted(entries, key=lambda entry: (entry[0].layer_id, *entry[1:])):
        known = parts.setdefault(key, [])
        if known and known[-1].group == group and known[-1].entries.stop == index:
            known[-1] = Part(group, range(known[-1].entries.start, index + 1))
        else:
            known.append(Part(group, range(index, index + 1)))
    return {key: tuple(found) for key, found in parts.items()}
