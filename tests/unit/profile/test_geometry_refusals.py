"""What is refused, and that the refusal names the architecture, the field and what is allowed."""

import json
from pathlib import Path
from typing import Any

import pytest

from prfaas.errors import ConfigError
from prfaas.profile.geometry import Dtypes, geometry_of

CONFIGS = Path(__file__).parents[2] / "data" / "model-configs"
DROP = object()


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return a real config with fields replaced, or dropped; a dot reaches into an object."""
    raw = json.loads((CONFIGS / f"{name}.json").read_text())
    for path, value in changes.items():
        *outer, field = path.split(".")
        target = raw
        for part in outer:
            target = target[part]
        if value is DROP:
            del target[field]
        else:
            target[field] = value
    return dict(raw)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "llama-3.1-8b",
            {"num_hidden_layers": DROP},
            "LlamaForCausalLM: num_hidden_layers is",
        ),
        ("llama-3.1-8b", {"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ("llama-3.1-8b", {"num_hidden_layers": 10**9}, "from 1 to 4096"),
        ("llama-3.1-8b", {"num_hidden_layers": True}, "num_hidden_layers is True"),
        ("llama-3.1-8b", {"num_attention_heads": 0}, "num_attention_heads is 0"),
        ("llama-3.1-8b", {"num_attention_heads": "32"}, "num_attention_heads is '32'"),
        ("llama-3.1-8b", {"num_attention_heads": 32.0}, "num_attention_heads is 32.0"),
        ("llama-3.1-8b", {"num_key_value_heads": float("nan")}, "num_key_value_heads is nan"),
        ("llama-3.1-8b", {"num_key_value_heads": 7}, "num_key_value_heads is 7; must be a divisor"),
        ("llama-3.1-8b", {"hidden_size": DROP}, "hidden_size is missing"),
        ("llama-3.1-8b", {"torch_dtype": "int3"}, "torch_dtype is 'int3'; must be one of auto"),
        ("llama-3.1-8b", {"torch_dtype": 16}, "torch_dtype is 16"),
        ("gemma-3-27b", {"text_config.dtype": "fp8"}, "dtype is 'fp8'"),
        ("llama-3.1-8b", {"hidden_size": 4097}, "hidden_size is 4097; must be a multiple of 32"),
        ("llama-3.1-8b", {"head_dim": [128]}, r"head_dim is \[128\]"),
        ("llama-3.1-8b", {"hidden_size": 10**400}, "hidden_size is a number of over 60"),
        ("llama-3.1-8b", {"hidden_size": [10**5000]}, "hidden_size is a list"),
        ("llama-3.1-8b", {"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        ("llama-3.1-8b", {"layer_types": ["odd"] * 32}, r"layer_types\[0\] is 'odd'; must be full"),
        ("llama-3.1-8b", {"layer_types": ["sliding_attention"] * 32}, "sliding_window is missing"),
        ("deepseek-v3", {"kv_lora_rank": DROP}, "DeepseekV3ForCausalLM: kv_lora_rank is missing"),
        ("deepseek-v3", {"index_head_dim": 128}, "index_head_dim is 128"),
        ("gemma-3-27b", {"text_config.head_dim": 0}, "text_config.head_dim is 0"),
        ("gemma-3-27b", {"text_config": 3}, "text_config is 3; must be an object"),
        ("gemma-3-27b", {"text_config.sliding_window": "x"}, "text_config.sliding_window is 'x'"),
        ("qwen3-235b-a22b", {"use_sliding_window": "no"}, "use_sliding_window is 'no'"),
        ("qwen3.5-397b-a17b", {"text_config.mamba_ssm_dtype": "int3"}, "mamba_ssm_dtype is 'int3'"),
        (
            "qwen3.5-397b-a17b",
            {"text_config.full_attention_interval": 5},
            "_attention_interval is 5",
        ),
        ("qwen3-next-80b-a3b", {"linear_key_head_dim": None}, "linear_key_head_dim is missing"),
        ("kimi-linear-48b-a3b", {"linear_attn_config": DROP}, "linear_attn_config is missing"),
        (
            "kimi-linear-48b-a3b",
            {"linear_attn_config.num_heads": 0},
            "attn_config.num_heads is 0",
        ),
        (
            "kimi-linear-48b-a3b",
            {"linear_attn_config.kda_layers": [1]},
            "linear_attn_config.kda_layers",
        ),
        ("kimi-linear-48b-a3b", {"linear_attn_config.kda_layers": [28]}, "from 1 to 27"),
        ("mimo-v2-flash", {"hybrid_layer_pattern": [2] * 48}, "hybrid_layer_pattern"),
        ("mimo-v2-flash", {"hybrid_layer_pattern": DROP}, "hybrid_layer_pattern is missing"),
        ("ring-2.5-1t", {"layer_group_size": DROP}, "layer_group_size is missing"),
        ("granite-4.0-h-small", {"mamba_d_head": 65}, "mamba_expand is 2; must be such that"),
        ("lfm2-1.2b", {"full_attn_idxs": [16]}, "full_attn_idxs"),
        ("lfm2-1.2b", {"conv_L_cache": "3"}, "conv_L_cache is '3'"),
        ("llama-3.1-8b", {"architectures": []}, r"architectures is \[\]"),
        ("llama-3.1-8b", {"architectures": [7]}, "architectures"),
        ("llama-3.1-8b", {"architectures": DROP, "model_type": DROP}, "architectures is missing"),
        ("llama-3.1-8b", {"architectures": DROP, "model_type": "odd"}, "'odd' is not known"),
    ],
)
def test_a_senseless_config_is_refused_by_field(
    name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        geometry_of(changed(name, changes))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 3000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Qwen3NxtForCausalLM", r"is not known; closest: Qwen3NextForCausalLM.*; give the S_kv"),
        ("RwkvForCausalLM", r"'RwkvForCausalLM' is not known; nothing known is like it; give"),
        ("DeepseekV32ForCausalLM", r"DeepseekV32ForCausalLM: .*indexer are not known here; give"),
    ],
)
def test_an_unknown_architecture_is_refused_with_the_closest_and_what_to_do(
    name: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        geometry_of({"architectures": [name]})
    assert len(str(raised.value)) < 300


def test_a_model_without_any_cache_is_refused() -> None:
    with pytest.raises(ConfigError, match="no layer caches anything"):
        geometry_of({"architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "--"})


@pytest.mark.parametrize("changes", [{"kv": "int4"}, {"ssm": "fp8_e4m3"}, {"conv": ""}, {"kv": 3}])
def test_unknown_dtypes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(changes))} dtype .*allowed: float32"):
        Dtypes(**changes)


@pytest.mark.parametrize("tp", [0, -1, 3, 1 << 20])
def test_a_tp_that_sglang_does_not_split_by_is_refused(tp: int) -> None:
    model = geometry_of(json.loads((CONFIGS / "llama-3.1-8b.json").read_text()))
    with pytest.raises(ConfigError, match="tensor parallelism"):
        model.physical_bytes(1024, tp=tp)
