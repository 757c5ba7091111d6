"""Bytes like those of a KV cache, for want of a model: no two tests need the same weights."""

import numpy as np
from numpy.typing import NDArray

CHANNELS = 1024
ROWS = 512


def bf16_bytes(num_bytes: int, seed: int = 0, spread: float = 0.5) -> NDArray[np.uint8]:
    """Return bfloat16 numbers: Gaussian, each channel with a scale of its own (log-normal).

    Exponents of keys and values were measured to be about so: arXiv 2508.19263, ratios of 1.3 to
    1.6 for bfloat16. With `spread` 0.5 the high bytes have 2.9 bits of entropy, the ratio is 1.47.
    They repeat after 1 MB, farther apart than an encoding looks back.
    """
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.normal(0, spread, CHANNELS))
    values = (rng.normal(size=(ROWS, CHANNELS)) * scales).astype(np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.resize(rounded.astype("<u2").view(np.uint8), num_bytes)
