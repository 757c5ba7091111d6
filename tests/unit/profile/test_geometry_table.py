"""Geometry of seventeen real models, against figures worked out and checked outside this code."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from prfaas.profile.geometry import Dtypes, KvGeometry, geometry_of

CONFIGS = Path(__file__).parents[2] / "data" / "model-configs"


class Row(NamedTuple):
    """Bytes; S_kv in MiB to one digit at 1K, 8K, 32K and 128K."""

    layers: dict[str, int]
    per_token: int
    fixed: int
    ssm_conv_window: tuple[int, int, int]
    fixed_bf16_ssm: int
    kv_mib: tuple[float, float, float, float]


NONE = (0, 0, 0)
DENSE_MLA = Row({"MLA": 61}, 70_272, 0, NONE, 0, (68.6, 549.0, 2196.0, 8784.0))
DENSE_8B = Row({"GQA": 32}, 131_072, 0, NONE, 0, (128.0, 1024.0, 4096.0, 16384.0))
TABLE = {
    "kimi-linear-48b-a3b": Row(
        {"KDA": 20, "MLA": 7},
        8_064,
        43_417_600,
        (41_943_040, 1_474_560, 0),
        22_446_080,
        (49.3, 104.4, 293.4, 1049.4),
    ),
    "mimo-v2-flash": Row(
        {"SWA": 39, "GQA": 9},
        23_040,
        25_559_040,
        (0, 0, 25_559_040),
        25_559_040,
        (46.9, 204.4, 744.4, 2904.4),
    ),
    "qwen3.5-397b-a17b": Row(
        {"GDN": 45, "GQA": 15},
        30_720,
        192_061_440,
        (188_743_680, 3_317_760, 0),
        97_689_600,
        (213.2, 423.2, 1143.2, 4023.2),
    ),
    "ring-2.5-1t": Row(
        {"lightning": 70, "MLA": 10},
        11_520,
        293_601_280,
        (293_601_280, 0, 0),
        146_800_640,
        (291.2, 370.0, 640.0, 1720.0),
    ),
    "minimax-m2.5": Row({"GQA": 62}, 253_952, 0, NONE, 0, (248.0, 1984.0, 7936.0, 31744.0)),
    "qwen3-235b-a22b": Row({"GQA": 94}, 192_512, 0, NONE, 0, (188.0, 1504.0, 6016.0, 24064.0)),
    "qwen3-next-80b-a3b": Row(
        {"GDN": 36, "GQA": 12},
        24_576,
        77_266_944,
        (75_497_472, 1_769_472, 0),
        39_518_208,
        (97.7, 265.7, 841.7, 3145.7),
    ),
    "deepseek-v3": DENSE_MLA,
    "deepseek-r1": DENSE_MLA,
    "kimi-k2": DENSE_MLA,
    "llama-3.1-70b": Row({"GQA": 80}, 327_680, 0, NONE, 0, (320.0, 2560.0, 10240.0, 40960.0)),
    "llama-3.1-8b": DENSE_8B,
    "mixtral-8x7b": DENSE_8B,
    "gemma-3-27b": Row(
        {"SWA": 52, "GQA": 10},
        81_920,
        436_207_616,
        (0, 0, 436_207_616),
        436_207_616,
        (496.0, 1056.0, 2976.0, 10656.0),
    ),
    "mistral-7b-v0.1": Row(
        {"SWA": 32},
        0,
        536_870_912,
        (0, 0, 536_870_912),
        536_870_912,
        (128.0, 512.0, 512.0, 512.0),
    ),
    "granite-4.0-h-small": Row(
        {"Mamba2": 36, "GQA": 4},
        16_384,
        152_819_712,
        (150_994_944, 1_824_768, 0),
        77_322_240,
        (161.7, 273.7, 657.7, 2193.7),
    ),
    "lfm2-1.2b": Row(
        {"ShortConv": 10, "GQA": 6},
        12_288,
        81_920,
        (0, 81_920, 0),
        81_920,
        (12.1, 96.1, 384.1, 1536.1),
    ),
}


def read(name: str, dtypes: Dtypes | None = None) -> KvGeometry:
    return geometry_of(json.loads((CONFIGS / f"{name}.json").read_text()), dtypes=dtypes)


def test_every_config_has_a_row() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_geometry_of_a_real_model(name: str) -> None:
    row, model = TABLE[name], read(name)
    assert model.counts() == row.layers
    assert model.bytes_per_token() == row.per_token
    parts = (model.ssm_bytes(), model.conv_bytes(), model.full_window_bytes())
    assert (model.fixed_bytes(), parts) == (row.fixed, row.ssm_conv_window)
    assert read(name, Dtypes(ssm="bfloat16")).fixed_bytes() == row.fixed_bf16_ssm
    mib = [round(model.kv_bytes(k * 1024) / (1 << 20), 1) for k in (1, 8, 32, 128)]
    assert mib == list(row.kv_mib)


def test_an_eight_bit_kv_cache_halves_what_grows_and_leaves_the_states() -> None:
    wide, narrow = read("qwen3-next-80b-a3b"), read("qwen3-next-80b-a3b", Dtypes(kv="fp8_e4m3"))
    assert narrow.bytes_per_token() * 2 == wide.bytes_per_token()
    assert narrow.state_bytes() == wide.state_bytes()


#: What eight ranks hold together over one logical copy, as ratios of bytes per token.
TP_8 = {
    "qwen3.5-397b-a17b": 4,
    "qwen3-next-80b-a3b": 4,
    "qwen3-235b-a22b": 2,
    "mimo-v2-flash": 2,
    "deepseek-v3": 8,
    "kimi-linear-48b-a3b": 8,
    "llama-3.1-70b": 1,
}


@pytest.mark.parametrize("name", TP_8)
def test_ranks_replicate_kv_heads_and_latents(name: str) -> None:
    model = read(name)
    grown = model.physical_bytes(8192, tp=8) - model.physical_bytes(4096, tp=8)
    assert grown == TP_8[name] * model.bytes_per_token() * 4096


def test_ranks_pad_mamba_groups_and_split_everything_else() -> None:
    granite = read("granite-4.0-h-small")
    rank = granite.on_rank(8)
    assert rank.ssm_bytes() * 8 == granite.ssm_bytes()
    assert rank.conv_bytes() * 8 / granite.conv_bytes() == pytest.approx(1.21, abs=0.01)


@pytest.mark.parametrize(
    ("name", "per_token"), [("gemma-3-27b", 507_904), ("mistral-7b-v0.1", 131_072)]
)
def test_sglang_keeps_all_tokens_of_windows_that_it_has_no_pool_for(
    name: str, per_token: int
) -> None:
    assert read(name).physical_bytes(100_000, tp=1) == per_token * 100_000


def test_sglang_keeps_the_window_only_where_it_has_a_pool() -> None:
    mimo = read("mimo-v2-flash")
    assert mimo.physical_bytes(100_000, tp=1) == mimo.kv_bytes(100_000)
