import json
from pathlib import Path
from typing import Any

import pytest

from prfaas.errors import ConfigError
from prfaas_agent.model_facts import ModelFacts, read_model_facts


def facts_of(tmp_path: Path, config: Any) -> ModelFacts:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return read_model_facts(tmp_path)


@pytest.mark.parametrize(
    ("config", "stateful"),
    [
        ({"model_type": "qwen3"}, False),
        ({"layer_types": ["full_attention", "sliding_attention"]}, False),
        ({"layer_types": ["linear_attention", "full_attention"]}, True),
        ({"layer_types": ["mamba", "attention"]}, True),
        ({"layers_block_type": ["linear_attention", "attention"]}, True),
        ({"full_attention_interval": 4}, True),
        ({"linear_attn_config": {"kda_layers": [1]}}, True),
        ({"mamba_d_ssm": 64, "layer_types": ["attention"]}, True),
        ({"text_config": {"layer_types": ["linear_attention"]}}, True),
    ],
)
def test_states_are_recognised(tmp_path: Path, config: dict[str, Any], stateful: bool) -> None:
    assert facts_of(tmp_path, config).stateful is stateful


def test_the_context_length_is_found_also_in_a_text_config(tmp_path: Path) -> None:
    assert facts_of(tmp_path, {"max_position_embeddings": 77}).context_tokens == 77
    nested = {"text_config": {"max_position_embeddings": 88}}
    assert facts_of(tmp_path, nested).context_tokens == 88
    assert facts_of(tmp_path, {}).context_tokens == 0


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_a_broken_config_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_model_facts(tmp_path)


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: No such file"):
        read_model_facts(tmp_path)
