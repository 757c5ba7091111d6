"""Hybrids of Mamba or short convolutions and softmax attention."""

from prfaas.profile.geometry.families.family import Family
from prfaas.profile.geometry.families.softmax import attention_of
from prfaas.profile.geometry.fields import MAX_LAYERS, Fields
from prfaas.profile.geometry.layers import Layer
from prfaas.profile.geometry.states import Mamba1, Mamba2, ShortConv

MAMBA_WORD, ATTENTION_WORD, NOTHING = "mamba", "attention", "nothing"
_GRANITE_KINDS = {
    "mamba": MAMBA_WORD,
    "linear_attention": MAMBA_WORD,
    "attention": ATTENTION_WORD,
    "full_attention": ATTENTION_WORD,
}
_NEMOTRON_KINDS = _GRANITE_KINDS | {
    "mlp": NOTHING,
    "moe": NOTHING,
    "M": MAMBA_WORD,
    "*": ATTENTION_WORD,
    "-": NOTHING,
    "E": NOTHING,
}
_LFM2_KINDS = {"full_attention": False, "conv": True, "short_conv": True}


def read_falcon_h1(fields: Fields) -> list[Layer]:
    """Read Falcon-H1: every layer has Mamba-2 beside softmax attention."""
    return [_mamba2(fields), attention_of(fields)] * fields.num_layers()


def read_granite(fields: Fields) -> list[Layer]:
    """Read Granite 4: Mamba-2 and softmax attention; some models have no Mamba at all."""
    kinds = [_GRANITE_KINDS[word] for word in fields.words("layer_types", _GRANITE_KINDS)]
    fields.per_layer("layer_types", kinds)
    return _by_kind(fields, kinds)


def read_bamba(fields: Fields) -> list[Layer]:
    """Read Bamba: Mamba-2, with softmax attention in listed layers, from 0."""
    num_layers = fields.num_layers()
    attention = fields.numbers("attn_layer_indices", low=0, high=num_layers - 1)
    kinds = [ATTENTION_WORD if i in attention else MAMBA_WORD for i in range(num_layers)]
    return _by_kind(fields, kinds)


def read_nemotron_h(fields: Fields) -> list[Layer]:
    """Read Nemotron-H: its pattern counts MLPs as layers, which cache nothing."""
    name = "hybrid_override_pattern"
    if not fields.has(name):
        name = "layers_block_type"
    kinds = [_NEMOTRON_KINDS[word] for word in fields.words(name, _NEMOTRON_KINDS)]
    attention = attention_of(fields) if ATTENTION_WORD in kinds else None
    mamba = _nemotron_mamba(fields) if MAMBA_WORD in kinds else None
    by_kind = {ATTENTION_WORD: attention, MAMBA_WORD: mamba, NOTHING: None}
    return [layer for kind in kinds if (layer := by_kind[kind]) is not None]


def read_jamba(fields: Fields) -> list[Layer]:
    """Read Jamba: Mamba-1, with softmax attention once in a period."""
    period = fields.count("attn_layer_period", limit=MAX_LAYERS)
    offset = 0 if fields.value("attn_layer_offset") == 0 else fields.count("attn_layer_offset")
    if offset >= period:
        raise fields.refuse("attn_layer_offset", f"below attn_layer_period, {period}")
    attention = attention_of(fields)
    mamba = Mamba1(
        channels=fields.count("mamba_expand") * fields.count("hidden_size"),
        state_size=fields.count("mamba_d_state"),
        kernel=fields.count("mamba_d_conv"),
    )
    return [attention if i % period == offset else mamba for i in range(fields.num_layers())]


def read_lfm2(fields: Fields) -> list[Layer]:
    """Read LFM2: short convolutions and softmax attention."""
    attention = attention_of(fields)
    conv = ShortConv(channels=fields.count("hidden_size"), kernel=fields.count("conv_L_cache"))
    return [conv if is_conv else attention for is_conv in _lfm2_conv_layers(fields)]


def _lfm2_conv_layers(fields: Fields) -> list[bool]:
    if fields.has("layer_types"):
        kinds = fields.words("layer_types", _LFM2_KINDS)
        fields.per_layer("layer_types", kinds)
        return [_LFM2_KINDS[kind] for kind in kinds]
    num_layers = fields.num_layers()
    full = fields.numbers("full_attn_idxs", low=0, high=num_layers - 1)
    return [index not in full for index in range(num_layers)]


def _by_kind(fields: Fields, kinds: list[str]) -> list[Layer]:
    """Return the layers; fields of a kind that no layer has are not looked at."""
    layers: dict[str, Layer] = {}
    if ATTENTION_WORD in kinds:
        layers[ATTENTION_WORD] = attention_of(fields)
    if MAMBA_WORD in kinds:
        layers[MAMBA_WORD] = _mamba2(fields)
    return [layers[kind] for kind in kinds]


def _mamba2(fields: Fields) -> Mamba2:
    heads = fields.count("mamba_n_heads")
    return Mamba2(
        heads=heads,
        head_dim=_mamba_head_dim(fields, heads),
        state_size=fields.count("mamba_d_state"),
        groups=fields.count("mamba_n_groups"),
        kernel=fields.count("mamba_d_conv"),
    )


def _mamba_head_dim(fields: Fields, heads: int) -> int:
    """Return the head dim; heads of that size must fill `mamba_d_ssm`, or `mamba_expand` x hidden.

    Falcon-H1's `mamba_expand` says nothing where `mamba_d_ssm` is there.
    """
    if fields.has("mamba_d_ssm"):
        name, inner = "mamba_d_ssm", fields.count("mamba_d_ssm")
    else:
        name, inner = "mamba_expand", fields.count("mamba_expand") * fields.count("hidden_size")
    is_given = fields.has("mamba_d_head") and fields.value("mamba_d_head") != "auto"
    head_dim = fields.count("mamba_d_head") if is_given else max(1, inner // heads)
    if heads * head_dim != inner:
        raise fields.refuse(name, f"such that {heads} Mamba heads of {head_dim} fill it")
    return head_dim


def _nemotron_mamba(fields: Fields) -> Mamba2:
    return Mamba2(
        heads=fields.count("mamba_num_heads"),
        head_dim=fields.count("mamba_head_dim"),
        state_size=fields.count("ssm_state_size"),
        groups=fields.count("n_groups", "mamba_n_groups"),
        kernel=fields.count("conv_kernel", "mamba_d_conv"),
    )


MAMBA: dict[str, Family] = {
    "BambaForCausalLM": Family(read_bamba),
    "FalconH1ForCausalLM": Family(read_falcon_h1, reads_ssm_dtype=True),
    "GraniteMoeHybridForCausalLM": Family(read_granite),
    "JambaForCausalLM": Family(read_jamba),
    "Lfm2ForCausalLM": Family(read_lfm2),
    "Lfm2MoeForCausalLM": Family(read_lfm2),
    "NemotronHForCausalLM": Family(read_nemotron_h, reads_ssm_dtype=True),
}
