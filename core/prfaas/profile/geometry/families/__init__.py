"""The known architectures, each with the function that reads its layers from a config."""

from prfaas.profile.geometry.families.family import Family
from prfaas.profile.geometry.families.latent import INDEXED, LATENT
from prfaas.profile.geometry.families.linear import LINEAR
from prfaas.profile.geometry.families.mamba import MAMBA
from prfaas.profile.geometry.families.softmax import SOFTMAX

FAMILIES: dict[str, Family] = SOFTMAX | LATENT | LINEAR | MAMBA
"""By `architectures[0]`."""

MODEL_TYPES = {
    "bailing_hybrid": "BailingMoeV2_5ForCausalLM",
    "bamba": "BambaForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "jamba": "JambaForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "mellum": "MellumForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "minimax": "MiniMaxForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
}
"""What stands for a config that names no architecture, by `model_type`."""

__all__ = ["FAMILIES", "INDEXED", "MODEL_TYPES", "Family"]
