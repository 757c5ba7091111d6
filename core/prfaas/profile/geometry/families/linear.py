"""Hybrids of linear attention (GDN, KDA, lightning) and softmax or latent attention."""

from prfaas.profile.geometry.families.family import Family
from prfaas.profile.geometry.families.latent import latent_of
from prfaas.profile.geometry.families.softmax import attention_of
from prfaas.profile.geometry.fields import Fields
from prfaas.profile.geometry.layers import Layer
from prfaas.profile.geometry.states import Gdn, Kda, Lightning

IS_LINEAR = {"full_attention": False, "linear_attention": True}
_FULL_ATTENTION_INTERVAL = 4
"""Of Qwen3-Next and Qwen3.5 where a file leaves it out. Source: transformers 5.19."""


def read_qwen(fields: Fields) -> list[Layer]:
    """Read Qwen3-Next and Qwen3.5: GDN, with every n-th layer of softmax attention."""
    linear = Gdn(
        key_heads=fields.count("linear_num_key_heads"),
        value_heads=fields.count("linear_num_value_heads"),
        key_dim=fields.count("linear_key_head_dim"),
        value_dim=fields.count("linear_value_head_dim"),
        kernel=fields.count("linear_conv_kernel_dim"),
    )
    return _mixed(_qwen_linear_layers(fields), linear=linear, full=attention_of(fields))


def _qwen_linear_layers(fields: Fields) -> list[bool]:
    interval = fields.count("full_attention_interval", default=_FULL_ATTENTION_INTERVAL)
    by_interval = [(index + 1) % interval != 0 for index in range(fields.num_layers())]
    if not fields.has("layer_types"):
        return by_interval
    by_type = _linear_by_type(fields)
    if fields.has("full_attention_interval") and by_type != by_interval:
        # SGLang reads the one, transformers the other.
        raise fields.refuse("full_attention_interval", "what layer_types says")
    return by_type


def read_kimi_linear(fields: Fields) -> list[Layer]:
    """Read Kimi Linear: KDA and MLA, by lists of layers that count from 1."""
    config = fields.nested("linear_attn_config")
    linear = Kda(
        heads=config.count("num_heads"),
        head_dim=config.count("head_dim"),
        kernel=config.count("short_conv_kernel_size"),
    )
    num_layers = fields.num_layers()
    kda = config.numbers("kda_layers", low=1, high=num_layers)
    full = config.numbers("full_attn_layers", low=1, high=num_layers)
    if sorted(kda + full) != list(range(1, num_layers + 1)):
        raise config.refuse("kda_layers", f"with full_attn_layers each of 1 to {num_layers} once")
    is_linear = [number in kda for number in range(1, num_layers + 1)]
    return _mixed(is_linear, linear=linear, full=latent_of(fields))


def read_bailing(fields: Fields) -> list[Layer]:
    """Read Ring and Ling hybrids: lightning (or KDA) layers, each group ended by a full one.

    Layers after the last whole group are linear, as in SGLang. The state is sized by
    `num_attention_heads`; SGLang ignores `num_kv_heads_for_linear_attn`.

    Source: sglang 0.5.23 srt/configs/bailing_hybrid.py.
    """
    heads, head_dim = fields.count("num_attention_heads"), fields.count("head_dim")
    linear: Layer = Lightning(heads=heads, head_dim=head_dim)
    if fields.has("short_conv_kernel_size"):
        kernel = fields.count("short_conv_kernel_size")
        linear = Kda(heads=heads, head_dim=head_dim, kernel=kernel)
    return _mixed(_bailing_linear_layers(fields), linear=linear, full=latent_of(fields))


def read_bailing_linear(fields: Fields) -> list[Layer]:
    """Read Ring-linear 2.0: as the later hybrids, with softmax attention as the full layers."""
    linear = Lightning(heads=fields.count("num_attention_heads"), head_dim=fields.count("head_dim"))
    is_linear = _bailing_linear_layers(fields)
    if is_linear[-1]:
        # Implementations disagree on what the layers after the last whole group are.
        raise fields.refuse("num_hidden_layers", "a multiple of layer_group_size")
    return _mixed(is_linear, linear=linear, full=attention_of(fields))


def _bailing_linear_layers(fields: Fields) -> list[bool]:
    if isinstance(fields.value("layer_group_size"), list):
        marks = fields.numbers("layer_group_size", low=0, high=1)
        fields.per_layer("layer_group_size", marks)
        return [mark == 1 for mark in marks]
    group = fields.count("layer_group_size")
    return [(index + 1) % group != 0 for index in range(fields.num_layers())]


def read_minimax(fields: Fields) -> list[Layer]:
    """Read MiniMax-Text-01 and M1: lightning layers and softmax attention."""
    full = attention_of(fields)
    linear = Lightning(heads=full.heads, head_dim=full.key_dim)
    if fields.has("attn_type_list"):
        marks = fields.numbers("attn_type_list", low=0, high=1)
        fields.per_layer("attn_type_list", marks)
        return _mixed([mark == 0 for mark in marks], linear=linear, full=full)
    if not fields.has("layer_types"):
        raise fields.refuse("attn_type_list", "a list of 0 (lightning) and 1 (softmax)")
    return _mixed(_linear_by_type(fields), linear=linear, full=full)


def _linear_by_type(fields: Fields) -> list[bool]:
    kinds = fields.words("layer_types", IS_LINEAR)
    fields.per_layer("layer_types", kinds)
    return [IS_LINEAR[kind] for kind in kinds]


def _mixed(is_linear: list[bool], *, linear: Layer, full: Layer) -> list[Layer]:
    return [linear if flag else full for flag in is_linear]


LINEAR: dict[str, Family] = {
    "BailingMoeLinearForCausalLM": Family(read_bailing_linear),
    "BailingMoeLinearV2ForCausalLM": Family(read_bailing_linear),
    "BailingMoeV2_5ForCausalLM": Family(read_bailing),
    "BailingMoeV3ForCausalLM": Family(read_bailing),
    "KimiLinearForCausalLM": Family(read_kimi_linear),
    "MiniMaxForCausalLM": Family(read_minimax),
    "MiniMaxM1ForCausalLM": Family(read_minimax),
    "MiniMaxText01ForCausalLM": Family(read_minimax),
    "Qwen3NextForCausalLM": Family(read_qwen, reads_ssm_dtype=True),
    "Qwen3_5ForCausalLM": Family(read_qwen, reads_ssm_dtype=True),
    "Qwen3_5ForConditionalGeneration": Family(read_qwen, reads_ssm_dtype=True),
    "Qwen3_5MoeForCausalLM": Family(read_qwen, reads_ssm_dtype=True),
    "Qwen3_5MoeForConditionalGeneration": Family(read_qwen, reads_ssm_dtype=True),
}
