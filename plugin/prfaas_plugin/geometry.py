"""SGLang's memory pools as a transfer layout.

Groups: `kv` (item = page; one entry per K or V tensor of a full-attention layer, or per MLA
latent), `state.<i>.<type>` for every state component that the pools report, whatever its type, and
`aux` (what the decode needs besides memory: first token, logprobs, counts).

Source: sglang 0.5.23 srt/disaggregation/base/conn.py (KVArgs).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from prfaas.transfer.layout import Entry, Group, Layout

KV = "kv"
AUX = "aux"


def state_group(index: int, state_type: Any) -> str:
    """Return the group name of state component `index` of a `StateType`."""
    return f"state.{index}.{state_type.value}"


def layout_of(kv_args: Any) -> Layout:
    """Return the layout of the pools in a `KVArgs`; entries that hold nothing are left out."""
    return Layout(
        tuple(
            Group(name, tuple(Entry(item, total // item) for _, total, item in tensors))
            for name, tensors in _groups(kv_args)
        )
    )


def pointers_of(kv_args: Any) -> dict[str, list[int]]:
    """Return the base address of every entry of `layout_of(kv_args)`, by group."""
    return {name: [pointer for pointer, _, _ in tensors] for name, tensors in _groups(kv_args)}


def _groups(kv_args: Any) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    """Yield per group its tensors as (address, bytes, bytes per item)."""
    yield from _group(KV, kv_args.kv_data_ptrs, kv_args.kv_data_lens, kv_args.kv_item_lens)
    for index, state_type in enumerate(kv_args.state_types):
        yield from _group(
            state_group(index, state_type),
            kv_args.state_data_ptrs[index],
            kv_args.state_data_lens[index],
            kv_args.state_item_lens[index],
        )
    yield from _group(AUX, kv_args.aux_data_ptrs, kv_args.aux_data_lens, kv_args.aux_item_lens)


def _group(
    name: str, pointers: Sequence[int], totals: Sequence[int], items: Sequence[int]
) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    tensors = [
        (int(pointer), int(total), int(item))
        for pointer, total, item in zip(pointers, totals, items, strict=True)
        if item
    ]
    if tensors:
        yield name, tensors
