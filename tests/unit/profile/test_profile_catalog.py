"""The catalog against the figures the paper prints."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.profile import Origin
from prfaas.profile.catalog import TABLE_3, TABLE_5, catalog_names, find_profile
from prfaas.profile.geometry import geometry_of

CONFIGS = Path(__file__).parents[2] / "data/model-configs"
K = 1024
LENGTHS = (K, 8 * K, 32 * K, 128 * K)
#: T_prefill implied by Table 3, as derived independently: seconds at LENGTHS.
IMPLIED_S = {
    "paper-kimi-linear-h200": (0.347, 0.382, 0.636, 1.804),
    "paper-mimo-v2-flash-h200": (0.480, 0.602, 1.340, 5.173),
    "paper-qwen3.5-397b-h200": (0.433, 0.565, 1.162, 4.518),
    "paper-ring-2.5-1t-h200": (0.336, 0.694, 2.073, 9.882),
    "paper-minimax-m2.5-h200": (0.421, 0.506, 1.111, 5.569),
    "paper-qwen3-235b-h200": (0.383, 0.563, 1.513, 9.389),
}


def gbps(name: str, tokens: float, *, gpus: int = 8) -> float:
    profile = find_profile(name)
    return profile.kv_throughput(tokens) * 8 / 1e9 * gpus / profile.gpus


@pytest.mark.parametrize("row", TABLE_5, ids=lambda row: f"{row.tokens // K}K")
def test_table_5_phi_follows_from_its_columns_to_their_printed_rounding(row) -> None:
    least = (row.kv_mib - 0.05) * 2**20 * 8 / 1e9 / (row.prefill_s + 0.005)
    most = (row.kv_mib + 0.05) * 2**20 * 8 / 1e9 / (row.prefill_s - 0.005)
    assert least < row.phi_gbps + 0.005
    assert most > row.phi_gbps - 0.005
    assert gbps("paper-1t-h200", row.tokens) == pytest.approx(row.phi_gbps, rel=0.008)


def test_table_5_is_as_printed() -> None:
    assert [row.phi_gbps for row in TABLE_5] == [3.61, 3.59, 3.19, 2.62]
    profile = find_profile("paper-1t-h200")
    assert [profile.prefill_s.at(tokens) for tokens in LENGTHS] == [0.44, 0.72, 1.84, 7.40]
    assert profile.kv_bytes.at(32 * K) == pytest.approx(701.3 * 2**20)
    assert profile.decode is None
    assert profile.origin is Origin.PUBLISHED


@pytest.mark.parametrize("name", TABLE_3)
def test_table_3_gives_phi_as_printed(name: str) -> None:
    shown = [round(gbps(name, tokens), 2) for tokens in LENGTHS]
    assert shown == list(TABLE_3[name].phi_gbps)


@pytest.mark.parametrize("name", TABLE_3)
def test_table_3_implies_the_known_prefill_times(name: str) -> None:
    prefill_s = find_profile(name).prefill_s
    assert [round(prefill_s.at(tokens), 3) for tokens in LENGTHS] == list(IMPLIED_S[name])


def test_egress_of_512_gpus_is_what_the_paper_says() -> None:
    assert round(gbps("paper-minimax-m2.5-h200", 32 * K, gpus=512) / 1000, 1) == 3.8
    assert round(gbps("paper-qwen3-235b-h200", 32 * K, gpus=512) / 1000, 1) == 2.1
    assert gbps("paper-ring-2.5-1t-h200", 32 * K, gpus=512) == pytest.approx(170, rel=0.03)
    assert gbps("paper-ring-2.5-1t-h200", 128 * K, gpus=512) < 100


def test_egress_of_10_000_gpus_is_ring_at_128k() -> None:
    assert round(gbps("paper-ring-2.5-1t-h200", 128 * K, gpus=10_000) / 1000, 1) == 1.8


def test_phi_is_not_taken_as_monotone() -> None:
    rising = [gbps("paper-kimi-linear-h200", tokens) for tokens in LENGTHS]
    falling = [gbps("paper-ring-2.5-1t-h200", tokens) for tokens in LENGTHS]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)


def test_the_h20_instance_serves_800_tokens_per_s_within_the_slo() -> None:
    profile = find_profile("paper-1t-h20")
    assert profile.origin is Origin.DERIVED
    assert profile.decode is not None
    assert profile.decode.batch_within(1 / 40) == 20
    assert profile.decode.tokens_per_s(20) == pytest.approx(800)


def test_nine_h20_instances_prefill_what_table_6_says() -> None:
    """Theta of the homogeneous baseline, at the mean length of the paper's workload."""
    assert round(9 / find_profile("paper-1t-h20").prefill_s.at(27_486), 2) == 2.11


@pytest.mark.parametrize("name", catalog_names())
def test_every_profile_answers_outside_its_points(name: str) -> None:
    """A shorter prompt takes less and a longer one more, and one answer agrees with many."""
    profile = find_profile(name)
    tokens = np.array([1, 128, 1000, 40_000, 262_144, 1_048_576], dtype=np.float64)
    for curve in (profile.prefill_s, profile.kv_bytes):
        values = [curve.at(x) for x in tokens]
        assert values == sorted(values)
        assert all(math.isfinite(value) and value > 0 for value in values)
        assert curve.over(tokens) == pytest.approx(values)


def test_extrapolation_goes_on_as_the_outermost_piece() -> None:
    profile = find_profile("paper-1t-h200")
    slope = math.log(7.40 / 1.84) / math.log(4)
    assert profile.prefill_s.at(256 * K) == pytest.approx(7.40 * 2**slope)
    assert profile.prefill_s.at(512) == pytest.approx(0.44 * 0.5 ** (math.log(0.72 / 0.44, 8)))


def test_geometry_extrapolates_exactly() -> None:
    kv_bytes = find_profile("paper-kimi-linear-h200").kv_bytes
    assert kv_bytes.at(512) == pytest.approx(43_417_600 + 512 * 8_064)
    assert kv_bytes.at(3_000) == pytest.approx(43_417_600 + 3_000 * 8_064)
    assert kv_bytes.at(1_000_000) == pytest.approx(43_417_600 + 1_000_000 * 8_064)


def test_every_profile_names_its_source() -> None:
    for name in catalog_names():
        assert "2604.15039" in find_profile(name).source


def test_an_unknown_name_is_answered_with_the_known() -> None:
    with pytest.raises(ConfigError, match=r"paper-2t.*paper-1t-h200, paper-1t-h20, paper-kimi"):
        find_profile("paper-2t")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("paper-kimi-linear-h200", "kimi-linear-48b-a3b"),
        ("paper-mimo-v2-flash-h200", "mimo-v2-flash"),
        ("paper-qwen3.5-397b-h200", "qwen3.5-397b-a17b"),
        ("paper-ring-2.5-1t-h200", "ring-2.5-1t"),
        ("paper-minimax-m2.5-h200", "minimax-m2.5"),
        ("paper-qwen3-235b-h200", "qwen3-235b-a22b"),
    ],
)
def test_s_kv_of_table_3_is_the_models_geometry(name: str, config: str) -> None:
    raw = json.loads((CONFIGS / f"{config}.json").read_text())
    geometry = geometry_of(raw)
    for tokens in (*LENGTHS, 200, 5_000, 1_000_000):
        assert TABLE_3[name].kv_bytes(tokens) == geometry.kv_bytes(tokens)
        assert find_profile(name).kv_bytes.at(tokens) == pytest.approx(geometry.kv_bytes(tokens))
