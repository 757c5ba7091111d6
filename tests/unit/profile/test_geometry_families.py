"""Architectures beyond the real files: small configs with sizes worked out by hand."""

from typing import Any

import pytest

from prfaas.profile.geometry import Dtypes, dtypes_of, geometry_of, known_architectures

#: 4 layers; a KV head of one layer takes 2 x 16 x 2 = 64 B a token, so 2 of them 128 B.
BASE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MLA = {"kv_lora_rank": 32, "qk_rope_head_dim": 8}  # 80 B a token
SWA, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}  # state 8 x 16 x 8 x 4 = 4,096 B; convolution (128 + 16) x 3 x 2 = 864 B
GDN = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}  # state 4 x 16 x 8 x 4 = 2,048 B; convolution (2 x 16 + 64) x 3 x 2 = 576 B


def config(architecture: str, **changes: Any) -> dict[str, Any]:
    return {"architectures": [architecture], **BASE, **changes}


CASES: list[tuple[dict[str, Any], dict[str, int], int, int, int]] = [
    # config, layers, bytes per token, state bytes, bytes of full windows
    (config("LlamaForCausalLM"), {"GQA": 4}, 512, 0, 0),
    (config("LlamaForCausalLM", num_key_value_heads=None), {"MHA": 4}, 1024, 0, 0),
    (config("LlamaForCausalLM", head_dim=32), {"GQA": 4}, 1024, 0, 0),
    (config("Glm4MoeForCausalLM", head_dim=32), {"GQA": 4}, 1024, 0, 0),
    (config("MistralForCausalLM", sliding_window=10), {"SWA": 4}, 0, 0, 5120),
    (config("MistralForCausalLM", sliding_window=None), {"GQA": 4}, 512, 0, 0),
    (config("Qwen2ForCausalLM", sliding_window=10), {"GQA": 4}, 512, 0, 0),
    (config("Qwen3ForCausalLM", sliding_window=10, use_sliding_window=False),
     {"GQA": 4}, 512, 0, 0),
    (
        config("Qwen2ForCausalLM", sliding_window=10, use_sliding_window=True, max_window_layers=3),
        {"GQA": 3, "SWA": 1},
        384,
        0,
        1280,
    ),
    (config("Gemma2ForCausalLM", sliding_window=10), {"SWA": 2, "GQA": 2}, 256, 0, 2560),
    (
        config("GptOssForCausalLM", sliding_window=10, layer_types=[SWA, FULL, SWA, SWA]),
        {"SWA": 3, "GQA": 1},
        128,
        0,
        3840,
    ),
    (config("Cohere2ForCausalLM", sliding_window=10), {"SWA": 3, "GQA": 1}, 128, 0, 3840),
    (
        config("Gemma3ForCausalLM", sliding_window=10, sliding_window_pattern=2, head_dim=16),
        {"SWA": 2, "GQA": 2},
        256,
        0,
        2560,
    ),
    (
        # gemma-3-4b's file names neither heads nor head size: 8, 4 and 256.
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "text_config": {"num_hidden_layers": 6, "hidden_size": 2560, "sliding_window": 1024},
        },
        {"SWA": 5, "GQA": 1},
        4096,
        0,
        5 * 4096 * 1024,
    ),
    (config("MellumForCausalLM", sliding_window=8, layer_types=[SWA] * 3 + [FULL]),
     {"SWA": 3, "GQA": 1}, 128, 0, 3072),
    (
        config("MiMoV2FlashForCausalLM", head_dim=24, v_head_dim=8, sliding_window=10,
               swa_num_key_value_heads=4, hybrid_layer_pattern=[0, 1, 1, 0]),
        {"GQA": 2, "SWA": 2}, 256, 0, 5120,
    ),
    (config("DeepseekV2ForCausalLM", **MLA), {"MLA": 4}, 320, 0, 0),
    (
        {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": BASE | MLA},
        {"MLA": 4}, 320, 0, 0,
    ),
    (config("Qwen3NextForCausalLM", **GDN), {"GDN": 3, "GQA": 1}, 128, 7872, 0),
    (
        config("Qwen3_5ForCausalLM", **GDN, layer_types=[LINEAR, FULL, LINEAR, FULL]),
        {"GDN": 2, "GQA": 2}, 256, 5248, 0,
    ),
    (
        config("KimiLinearForCausalLM", **MLA, linear_attn_config={
            "kda_layers": [1, 2, 3], "full_attn_layers": [4],
            "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4}),
        {"KDA": 3, "MLA": 1}, 80, 3 * (4096 + 1152), 0,
    ),
    (
        config("BailingMoeV2_5ForCausalLM", **MLA, head_dim=16, layer_group_size=2),
        {"lightning": 2, "MLA": 2}, 160, 2 * 4096, 0,
    ),
    (
        config("BailingMoeV3ForCausalLM", **MLA, head_dim=16, layer_group_size=[1, 1, 1, 0],
               short_conv_kernel_size=4),
        {"KDA": 3, "MLA": 1}, 80, 3 * (4096 + 1152), 0,
    ),
    (
        config("BailingMoeLinearV2ForCausalLM", head_dim=16, layer_group_size=4),
        {"lightning": 3, "GQA": 1}, 128, 3 * 4096, 0,
    ),
    (
        config("MiniMaxText01ForCausalLM", head_dim=16, attn_type_list=[0, 0, 0, 1]),
        {"lightning": 3, "GQA": 1}, 128, 3 * 4096, 0,
    ),
    (config("FalconH1ForCausalLM", **MAMBA2), {"Mamba2": 4, "GQA": 4}, 512, 4 * 4960, 0),
    (
        # mamba_expand says nothing where mamba_d_ssm is there: 4 heads of 16, 2,048 + 480 B.
        config("FalconH1ForCausalLM", **(MAMBA2 | {"mamba_d_ssm": 64, "mamba_n_heads": 4})),
        {"Mamba2": 4, "GQA": 4}, 512, 4 * (2048 + 480), 0,
    ),
    (
        config("GraniteMoeHybridForCausalLM", **(MAMBA2 | {"mamba_d_head": "auto"}),
               layer_types=[LINEAR, "mamba", "attention", FULL]),
        {"Mamba2": 2, "GQA": 2}, 256, 2 * 4960, 0,
    ),
    (config("GraniteMoeHybridForCausalLM", layer_types=["attention"] * 4), {"GQA": 4}, 512, 0, 0),
    (config("BambaForCausalLM", **MAMBA2, attn_layer_indices=[2]),
     {"Mamba2": 3, "GQA": 1}, 128, 3 * 4960, 0),
    (
        # The pattern counts MLPs; attention_head_dim and conv_kernel are this family's names.
        config("NemotronHForCausalLM", hybrid_override_pattern="M-M*E-", attention_head_dim=32,
               mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=8, n_groups=1, conv_kernel=4),
        {"Mamba2": 2, "GQA": 1}, 256, 2 * 4960, 0,
    ),
    (
        # 128 channels: state 128 x 8 x 4 B, convolution 128 x 3 x 2 B, without B and C.
        config("JambaForCausalLM", mamba_expand=2, mamba_d_state=8, mamba_d_conv=4,
               attn_layer_period=4, attn_layer_offset=0),
        {"Mamba1": 3, "GQA": 1}, 128, 3 * (4096 + 768), 0,
    ),
    (
        config("Lfm2MoeForCausalLM", layer_types=["conv", "conv", FULL, "conv"], conv_L_cache=3),
        {"ShortConv": 3, "GQA": 1}, 128, 3 * 64 * 2 * 2, 0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "layers", "per_token", "state", "window"),
    CASES,
    ids=[f"{index}-{case[0]['architectures'][0]}" for index, case in enumerate(CASES)],
)
def test_geometry_of_a_family(
    raw: dict[str, Any], layers: dict[str, int], per_token: int, state: int, window: int
) -> None:
    model = geometry_of(raw)
    assert model.counts() == layers
    assert (model.bytes_per_token(), model.state_bytes()) == (per_token, state)
    assert model.full_window_bytes() == window


def test_a_config_without_architectures_is_read_by_its_model_type() -> None:
    assert geometry_of({"model_type": "llama", **BASE}).architecture == "LlamaForCausalLM"


def test_every_model_type_stands_for_a_known_architecture() -> None:
    from prfaas.profile.geometry.families import MODEL_TYPES

    assert set(MODEL_TYPES.values()) <= set(known_architectures())


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("Qwen3NextForCausalLM", "bfloat16"),  # SGLang reads the field of this one
        ("BailingMoeV2_5ForCausalLM", "float32"),  # and not of this one
    ],
)
def test_the_state_dtype_of_the_config_counts_where_sglang_reads_it(
    architecture: str, expected: str
) -> None:
    raw = config(
        architecture, **GDN, **MLA, head_dim=16, layer_group_size=2, mamba_ssm_dtype="bfloat16"
    )
    assert dtypes_of(raw) == geometry_of(raw).dtypes == Dtypes(ssm=expected)


def test_what_the_engine_is_told_wins_over_the_config() -> None:
    raw = config("Qwen3NextForCausalLM", **GDN, mamba_ssm_dtype="bfloat16")
    assert geometry_of(raw, dtypes=Dtypes()).dtypes.ssm == "float32"
