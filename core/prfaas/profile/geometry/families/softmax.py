"""Models of softmax attention only: full, or with sliding windows.

Source: transformers 5.19 configuration classes (the default patterns of windows).
"""

from collections.abc import Callable

from prfaas.profile.geometry.families.family import Family, Reader
from prfaas.profile.geometry.fields import Fields
from prfaas.profile.geometry.layers import Attention, Layer, Window

IS_WINDOW = {"full_attention": False, "sliding_attention": True}
_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}
"""Files of gemma-3 leave out what equals these. Source: transformers 5.19 Gemma3TextConfig."""

Rule = Callable[[Fields, int], bool]
"""Tells whether layer `index`, from 0, has a window, where `layer_types` does not say."""


def attention_of(fields: Fields, *, prefix: str = "") -> Attention:
    """Return the softmax attention that the usual fields describe, or those with a prefix.

    `head_dim` is hidden size over heads where a file leaves it out.
    """
    heads = fields.count(f"{prefix}num_attention_heads")
    kv_heads = fields.count(f"{prefix}num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.refuse(f"{prefix}num_key_value_heads", f"a divisor of {heads} heads")
    key_dim = _head_dim(fields, prefix, heads)
    value_dim = fields.count(f"{prefix}v_head_dim", default=key_dim)
    return Attention(heads=heads, kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim)


def _head_dim(fields: Fields, prefix: str, heads: int) -> int:
    for name in (f"{prefix}head_dim", "attention_head_dim"):
        if fields.has(name):
            return fields.count(name)
    hidden = fields.count("hidden_size")
    if hidden % heads:
        raise fields.refuse("hidden_size", f"a multiple of {heads} heads, as head_dim is missing")
    return hidden // heads


def softmax_reader(rule: Rule) -> Reader:
    """Return a reader that takes `layer_types` where it is there, else the rule."""

    def read(fields: Fields) -> list[Layer]:
        attention = attention_of(fields)
        windowed = _windowed(fields, rule)
        if not any(windowed):
            return [attention] * len(windowed)
        window = Window(attention, fields.count("sliding_window"))
        return [window if is_window else attention for is_window in windowed]

    return read


def _windowed(fields: Fields, rule: Rule) -> list[bool]:
    if fields.has("layer_types"):
        kinds = fields.words("layer_types", IS_WINDOW)
        fields.per_layer("layer_types", kinds)
        return [IS_WINDOW[kind] for kind in kinds]
    return [rule(fields, index) for index in range(fields.num_layers())]


def never(fields: Fields, index: int) -> bool:  # noqa: ARG001 - a Rule
    """Every layer keeps all tokens."""
    return False


def if_set(fields: Fields, index: int) -> bool:  # noqa: ARG001 - a Rule
    """Every layer has the window, if there is one."""
    return fields.has("sliding_window")


def above_max_window_layers(fields: Fields, index: int) -> bool:
    """Qwen: layers from `max_window_layers` on, if `use_sliding_window`."""
    if not fields.flag("use_sliding_window") or not fields.has("sliding_window"):
        return False
    first = 0 if fields.value("max_window_layers") == 0 else fields.count("max_window_layers")
    return index >= first


def all_but_every(period: int) -> Rule:
    """All but every `sliding_window_pattern`-th layer (`period` if absent), if there is a window.

    >>> [all_but_every(3)(Fields("", ("", {"sliding_window": 8})), i) for i in range(4)]
    [True, True, False, True]
    """

    def rule(fields: Fields, index: int) -> bool:
        if not fields.has("sliding_window"):
            return False
        return (index + 1) % fields.count("sliding_window_pattern", default=period) != 0

    return rule


def read_gemma3(fields: Fields) -> list[Layer]:
    """Read gemma-3, whose files rely on its configuration class."""
    return softmax_reader(all_but_every(6))(fields.with_defaults(_GEMMA3_DEFAULTS))


def read_mimo_v2(fields: Fields) -> list[Layer]:
    """Read MiMo-V2: window layers have head counts and sizes of their own, and K and V differ."""
    is_window = _mimo_windows(fields)
    full = attention_of(fields)
    layers: list[Layer] = [full] * len(is_window)
    if any(is_window):
        window = Window(_mimo_window_attention(fields, full), fields.count("sliding_window"))
        layers = [window if flag else full for flag in is_window]
    return layers


def _mimo_windows(fields: Fields) -> list[bool]:
    if fields.has("hybrid_layer_pattern"):
        pattern = fields.numbers("hybrid_layer_pattern", low=0, high=1)
        fields.per_layer("hybrid_layer_pattern", pattern)
        return [mark == 1 for mark in pattern]
    if not fields.has("layer_types"):
        raise fields.refuse("hybrid_layer_pattern", "a list of 0 (full) and 1 (window)")
    return _windowed(fields, never)


def _mimo_window_attention(fields: Fields, full: Attention) -> Attention:
    own = fields.with_defaults(
        {
            "swa_num_attention_heads": full.heads,
            "swa_num_key_value_heads": full.kv_heads,
            "swa_head_dim": full.key_dim,
            "swa_v_head_dim": full.value_dim,
        }
    )
    return attention_of(own, prefix="swa_")


def _named(reader: Reader, *architectures: str) -> dict[str, Family]:
    return {name: Family(reader) for name in architectures}


SOFTMAX: dict[str, Family] = {
    **_named(
        softmax_reader(never),
        "ApertusForCausalLM",
        "ArceeForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "CohereForCausalLM",
        "DeepseekForCausalLM",
        "Ernie4_5ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4vMoeForConditionalGeneration",
        "GlmForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "InternLM2ForCausalLM",
        "InternLM3ForCausalLM",
        "LlamaForCausalLM",
        "MiMoForCausalLM",
        "MiniMaxM2ForCausalLM",
        "NemotronForCausalLM",
        "Olmo2ForCausalLM",
        "OlmoForCausalLM",
        "OlmoeForCausalLM",
        "SeedOssForCausalLM",
        "SmolLM3ForCausalLM",
        "StableLmForCausalLM",
    ),
    **_named(
        softmax_reader(if_set),
        "MinistralForCausalLM",
        "Mistral3ForConditionalGeneration",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Phi3ForCausalLM",
        "PhiMoEForCausalLM",
        "Starcoder2ForCausalLM",
    ),
    **_named(
        softmax_reader(above_max_window_layers),
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
    ),
    **_named(softmax_reader(all_but_every(2)), "Gemma2ForCausalLM", "GptOssForCausalLM"),
    **_named(
        softmax_reader(all_but_every(4)),
        "Cohere2ForCausalLM",
        "Exaone4ForCausalLM",
        "Olmo3ForCausalLM",
    ),
    **_named(read_gemma3, "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    **_named(softmax_reader(never), "MellumForCausalLM"),
    **_named(read_mimo_v2, "MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"),
}
