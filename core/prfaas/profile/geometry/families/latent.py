"""Models whose layers all are multi-head latent attention (MLA)."""

from prfaas.errors import ConfigError
from prfaas.profile.geometry.families.family import Family
from prfaas.profile.geometry.fields import Fields
from prfaas.profile.geometry.layers import Latent, Layer


def latent_of(fields: Fields) -> Latent:
    """Return the latent; `num_key_value_heads` and `head_dim` of such files size no cache."""
    if fields.has("index_head_dim"):
        raise ConfigError(
            f"{fields.refuse('index_head_dim', 'absent')}, as the cached keys of a sparse-attention"
            " indexer are not known here"
        )
    return Latent(lora_rank=fields.count("kv_lora_rank"), rope_dim=fields.count("qk_rope_head_dim"))


def read_latent(fields: Fields) -> list[Layer]:
    """Read a model of MLA layers only."""
    return [latent_of(fields)] * fields.num_layers()


LATENT = {
    name: Family(read_latent)
    for name in (
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "MiniCPM3ForCausalLM",
    )
}

INDEXED = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
"""Latent attention behind a sparse-attention indexer, whose own cached keys are not known."""
