"""What a prefill sends, in bytes, worked out from a model's configuration."""

import json
from pathlib import Path

from prfaas.profile.geometry import Dtypes, KvGeometry, geometry_of

#: One row of SGLang's MetadataBuffers: token id, cached tokens, its logprob and that one's index,
#: 16 x 4 B each; 128 top logprobs and their indices, 4 B each; 16 draft probabilities of 4 B and
#: indices of 8 B; a hidden state, without speculation 16 x 4 B; 8 x 8 B for the room.
AUX_BYTES = 4 * 16 * 4 + 2 * 128 * 4 + 16 * (4 + 8) + 16 * 4 + 8 * 8


def geometry(model: Path) -> KvGeometry:
    """Return the geometry of a model as the CPU kit runs it."""
    config = json.loads((model / "config.json").read_text())
    return geometry_of(config, dtypes=Dtypes(kv="float32", ssm="float32", conv="float32"))


def sent_bytes(model: KvGeometry, tokens: int) -> int:
    """Return what a prefill sends of its cache at page size 1, for `tokens` that are new to it.

    Of a window W only W - 1 tokens: the decode's first step adds its own before it attends.
    """
    windows = [layer.window_tokens for layer in model.layers if layer.window_tokens]
    in_window = min(tokens, max(windows, default=1) - 1)
    return model.kv_bytes(tokens) - model.window_bytes(tokens) + model.window_bytes(in_window)
