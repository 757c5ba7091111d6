"""What holds for every model and length, and for every damage to a config."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.profile.geometry import KvGeometry, geometry_of

CONFIGS = [
    json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[1] / "data" / "model-configs").glob("*.json"))
]
models = st.sampled_from([geometry_of(config) for config in CONFIGS])
tokens = st.integers(min_value=0, max_value=1 << 20)


@given(models, tokens, tokens)
def test_a_longer_prompt_never_weighs_less(model: KvGeometry, one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert model.kv_bytes(shorter) <= model.kv_bytes(longer)
    assert model.physical_bytes(shorter, tp=1) <= model.physical_bytes(longer, tp=1)


@given(models, st.integers(min_value=4096, max_value=1 << 20), tokens)
def test_growth_is_linear_once_every_window_is_full(
    model: KvGeometry, length: int, more: int
) -> None:
    assert model.kv_bytes(length) == model.bytes_per_token() * length + model.fixed_bytes()
    grown = model.kv_bytes(length + more) - model.kv_bytes(length)
    assert grown == model.bytes_per_token() * more


@given(models, tokens, st.sampled_from([1, 2, 4, 8]))
def test_ranks_together_hold_at_least_one_copy(model: KvGeometry, length: int, tp: int) -> None:
    assert model.physical_bytes(length, tp=tp) >= model.kv_bytes(length)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@given(st.data(), st.sampled_from(CONFIGS), junk)
def test_a_damaged_config_is_read_or_refused_in_one_line(
    data: st.DataObject, config: dict[str, Any], value: Any
) -> None:
    inner = next((key for key in ("text_config", "linear_attn_config") if key in config), None)
    damaged = dict(config)
    if inner is not None and data.draw(st.booleans()):
        damaged[inner] = config[inner] | {data.draw(st.sampled_from(sorted(config[inner]))): value}
    else:
        damaged[data.draw(st.sampled_from(sorted(config)))] = value
    assert outcome(damaged)


def outcome(config: dict[str, Any]) -> bool:
    """Tell whether a config is read, or refused as it should be."""
    try:
        return geometry_of(config).kv_bytes(1024) > 0
    except ConfigError as error:
        return "\n" not in str(error)
