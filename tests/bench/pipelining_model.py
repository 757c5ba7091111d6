"""A model whose prefill takes about a second on one core, with many layers, each a small part."""

from pathlib import Path

from prfaas_cpu.models import tokenizer, weights

NAME = "qwen3-bench"
NUM_LAYERS = 16
_KV_HEADS, _HEAD_DIM = 2, 64


def kv_bytes_per_token() -> int:
    """Return the KV cache of a token in fp32."""
    return NUM_LAYERS * 2 * _KV_HEADS * _HEAD_DIM * 4


def make_model(directory: Path) -> Path:
    """Write it below `directory`, if it is not there, and return its folder."""
    import torch
    import transformers

    folder = directory / NAME
    if (folder / "config.json").exists():
        return folder
    config = transformers.Qwen3Config(
        vocab_size=tokenizer.VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.END_OF_TEXT_ID,
        eos_token_id=tokenizer.END_OF_TEXT_ID,
        pad_token_id=tokenizer.END_OF_TEXT_ID,
    )
    model = transformers.Qwen3ForCausalLM(config).to(torch.float32)
    weights.fill_weights(model, attention_scale=1.0)
    model.save_pretrained(folder)
    tokenizer.write_tokenizer(folder)
    return folder
