"""What a model's `config.json` says that its engine's arguments and record depend on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError

_CONTEXT_KEYS = ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions")
#: Any of these in a config says that layers keep a recurrent or convolution state.
_STATE_KEYS = (
    "full_attention_interval",
    "hybrid_override_pattern",
    "layer_group_size",
    "linear_attn_config",
    "linear_conv_kernel_dim",
    "mamba_d_conv",
    "mamba_d_ssm",
    "mamba_num_heads",
    "ssm_cfg",
)
_STATE_LAYERS = ("linear", "mamba", "conv", "recurrent")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`context_tokens` is 0 when the config does not say; `stateful` as in `NodeRecord`."""

    context_tokens: int
    stateful: bool


def read_model_facts(model_path: Path) -> ModelFacts:
    """Read the facts of a model directory.

    Raises:
        ConfigError: naming the file that is missing or wrong.
    """
    path = model_path / "config.json"
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; a model directory has one") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: not a JSON object")
    text = raw.get("text_config")
    return _facts(raw | text if isinstance(text, dict) else raw)


def _facts(config: dict[str, Any]) -> ModelFacts:
    lengths = [config[key] for key in _CONTEXT_KEYS if isinstance(config.get(key), int)]
    kinds = config.get("layer_types") or config.get("layers_block_type") or []
    by_layer = any(word in str(kind) for kind in kinds for word in _STATE_LAYERS)
    by_key = not kinds and any(config.get(key) for key in _STATE_KEYS)
    by_mixer = any(config.get(key) for key in ("linear_attn_config", "mamba_d_ssm"))
    return ModelFacts(
        context_tokens=lengths[0] if lengths else 0, stateful=by_layer or by_key or by_mixer
    )
