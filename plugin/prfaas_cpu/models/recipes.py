"""What the tiny models are: their configurations, and how one is written."""

from pathlib import Path
from typing import Any

from prfaas_cpu.models import tokenizer, weights

_MAX_PROMPT_TOKENS = 8192
_SHAPE: dict[str, Any] = {
    "vocab_size": tokenizer.VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": _MAX_PROMPT_TOKENS,
    "tie_word_embeddings": False,
    "bos_token_id": tokenizer.END_OF_TEXT_ID,
    "eos_token_id": tokenizer.END_OF_TEXT_ID,
    "pad_token_id": tokenizer.END_OF_TEXT_ID,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
_RECIPES: dict[str, tuple[str, float, dict[str, Any]]] = {
    "qwen3-tiny": ("Qwen3", 1.0, {"num_hidden_layers": 4}),
    "qwen3-next-tiny": (
        "Qwen3Next",
        2.0,
        {
            **_EXPERTS,
            "num_hidden_layers": 8,
            "shared_expert_intermediate_size": 32,
            "partial_rotary_factor": 0.5,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
            # transformers reads the first, SGLang the second
            "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
            "full_attention_interval": 4,
        },
    ),
    "falcon-h1-tiny": (
        "FalconH1",
        3.0,
        {
            "num_hidden_layers": 4,
            "ssm_out_multiplier": 0.25,
            "mamba_d_ssm": 64,
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
            "mamba_n_groups": 1,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_chunk_size": 64,
        },
    ),
    "mellum-tiny": (
        "Mellum",
        1.0,
        {
            **_EXPERTS,
            "num_hidden_layers": 4,
            "sliding_window": 64,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        },
    ),
}


def write_model(name: str, directory: Path) -> None:
    """Write configuration, fp32 weights and tokenizer of one tiny model into a new `directory`."""
    import torch
    import transformers

    family, attention_scale, own = _RECIPES[name]
    config = getattr(transformers, f"{family}Config")(**_SHAPE, **own)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.float32)
    weights.fill_weights(model, attention_scale=attention_scale)
    directory.mkdir()
    model.save_pretrained(directory)
    tokenizer.write_tokenizer(directory)
    for file in directory.iterdir():
        file.chmod(0o644)  # safetensors writes 0600; engines may run as another user
