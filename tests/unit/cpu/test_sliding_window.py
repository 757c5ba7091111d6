"""The window layer's own slots, checked against attention over the right keys."""

from types import SimpleNamespace
from typing import Any

import torch

from prfaas_cpu.kernels.sliding_window import attend

MAPPING = torch.tensor([0, 5, 3, 1, 4, 2])


class Pool:
    def translate_loc_from_full_to_swa(self, slots: torch.Tensor) -> torch.Tensor:
        return MAPPING[slots]


def backend(*, window_pool: bool) -> SimpleNamespace:
    return SimpleNamespace(use_sliding_window_kv_pool=window_pool, token_to_kv_pool=Pool())


def read_keys(_backend: Any, *args: Any, **_kwargs: Any) -> list[list[float]]:
    _query, _output, k_cache, _v_cache, table, rows, lengths = args
    return [
        k_cache[table[row, :length]].tolist() for row, length in zip(rows, lengths, strict=True)
    ]


ARGS = (
    None,
    None,
    torch.arange(6) * 10.0,
    None,
    torch.tensor([[9, 9, 9], [1, 2, 3], [9, 9, 9], [4, 5, 9]], dtype=torch.int32).clamp(max=5),
    torch.tensor([3, 1]),
    torch.tensor([2, 3]),
)


def test_a_window_layer_reads_its_own_slots() -> None:
    keys = attend(read_keys, backend(window_pool=True), *ARGS, sliding_window_size=64)
    assert keys == [[40.0, 20.0], [50.0, 30.0, 10.0]]


def test_other_layers_and_other_models_are_left_alone() -> None:
    full = [[40.0, 50.0], [10.0, 20.0, 30.0]]
    assert attend(read_keys, backend(window_pool=True), *ARGS, sliding_window_size=None) == full
    assert attend(read_keys, backend(window_pool=False), *ARGS, sliding_window_size=64) == full
