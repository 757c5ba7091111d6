"""Random weights that make a tiny model worth testing with.

Each tensor's numbers come from a generator seeded with the tensor's name, so they depend on no
initialisation order and no torch version. Matrices are scaled so that greedy decoding wanders
instead of repeating one token. What got lost must change the output: decay rates are spread over
heads, from a memory of a few tokens to one of hundreds, and attention is sharp enough to tell one
key among hundreds from the rest.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MATRIX_SCALE = 1.5
_VECTOR_SCALE = 0.1
_ATTENTION_ENDS = ("q_proj", "o_proj")
_DECAY_RATES = (0.003, 1.0)


def fill_weights(model: Any, *, attention_scale: float) -> None:
    """Overwrite every parameter of a transformers model in place.

    `attention_scale` makes attention's queries sharper and its share of the output larger.
    """
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if bool(parameter.any()) else 0.0
            parameter.copy_(torch.from_numpy(_values(name, tuple(parameter.shape), centre)))
            if name.split(".")[-2] in _ATTENTION_ENDS:
                parameter.mul_(attention_scale)


def _values(name: str, shape: tuple[int, ...], centre: float) -> NDArray[np.float32]:
    """Return a tensor's numbers; `centre` is 0 for a vector that starts at 0, else 1."""
    kind = name.rpartition(".")[2]
    if kind == "A_log":
        return np.log(np.geomspace(*_DECAY_RATES, num=shape[0])).astype(np.float32)
    noise = _generator(name).standard_normal(shape)
    if len(shape) > 1:
        return np.asarray(noise * _MATRIX_SCALE / np.sqrt(shape[-1]), dtype=np.float32)
    if kind in ("bias", "dt_bias"):
        centre = 0.0
    return np.asarray(centre + _VECTOR_SCALE * noise, dtype=np.float32)


def _generator(name: str) -> np.random.Generator:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return np.random.Generator(np.random.PCG64(seed))
