"""From samples to curves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.profile import Origin
from prfaas.profile.document import parse_profile, render_profile
from prfaas.profile.fit import Subject, fit_profile, kv_curve, rising_curve
from prfaas.profile.samples import DecodeSample, PrefillSample, Samples

SUBJECT = Subject("name", "model", "hardware", 1)
lists = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12)


def kv_bytes(tokens: int) -> int:
    return 1000 + 10 * tokens + 3 * min(tokens, 4096)


def test_medians_become_points() -> None:
    samples = Samples(
        tuple(PrefillSample(n, s) for n, s in [(128, 9.0), (1024, 3.0), (128, 1.0), (128, 2.0)]),
        tuple(DecodeSample(n, s, 64) for n, s in [(1, 0.1), (8, 0.3), (1, 0.2), (1, 0.9)]),
    )
    profile = fit_profile(SUBJECT, samples, kv_bytes, source="a test")
    assert profile.prefill_s.to_json()["points"] == [[128.0, 2.0], [1024.0, 3.0]]
    assert profile.decode is not None
    assert profile.decode.step_s.to_json()["points"] == [[1.0, 0.2], [8.0, 0.3]]
    assert profile.decode.max_batch == 8
    assert profile.origin is Origin.MEASURED
    assert parse_profile(render_profile(profile), "f") == profile


def test_without_decode_it_only_prefills() -> None:
    profile = fit_profile(SUBJECT, Samples((PrefillSample(8, 1.0),)), kv_bytes, source="a test")
    assert profile.decode is None


def test_without_prefill_there_is_no_profile() -> None:
    with pytest.raises(ConfigError, match="no prefill"):
        fit_profile(SUBJECT, Samples(decode=(DecodeSample(1, 1.0, 8),)), kv_bytes, source="a test")


def test_noise_is_pooled_into_its_geometric_mean() -> None:
    curve = rising_curve([(1, 1.0), (2, 8.0), (3, 2.0), (4, 16.0)])
    assert [curve.at(x) for x in (1, 2, 3, 4)] == pytest.approx([1.0, 4.0, 4.0, 16.0])


@given(lists)
def test_a_curve_never_falls_and_stays_among_its_points(ys: list[float]) -> None:
    curve = rising_curve([(index + 1, y) for index, y in enumerate(ys)])
    values = [y for _, y in curve.to_json()["points"]]
    assert all(left <= right for left, right in pairwise(values))
    assert min(ys) * (1 - 1e-9) <= values[0]
    assert values[-1] <= max(ys) * (1 + 1e-9)


@given(lists)
def test_what_rises_already_is_left_alone(ys: list[float]) -> None:
    points = [(index + 1, y) for index, y in enumerate(sorted(ys))]
    values = [y for _, y in rising_curve(points).to_json()["points"]]
    assert values == sorted(ys)


@pytest.mark.parametrize("tokens", [1, 100, 4095, 4096, 5000, 131_072, 2_000_000])
def test_kv_bytes_are_exact_through_a_window(tokens: int) -> None:
    assert kv_curve(kv_bytes).at(tokens) == pytest.approx(kv_bytes(tokens), rel=1e-12)
