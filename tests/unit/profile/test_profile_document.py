"""Profile files: what is written is read back, and every bad value is one line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.profile import (
    Curve,
    DecodeProfile,
    InstanceProfile,
    Origin,
    PolynomialCurve,
    Scale,
    TableCurve,
)
from prfaas.profile.catalog import catalog_names, find_profile
from prfaas.profile.document import parse_document, parse_profile, render_profile
from prfaas.profile.samples import DecodeSample, Machine, PrefillSample, Provenance, Samples

WHERE = "p.json"

seconds = st.floats(1e-6, 1e6)
batches = st.integers(1, 1 << 20)
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=' "{[\\'),
    min_size=1,
    max_size=30,
)
counts = st.integers(1, 1 << 40)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    if draw(st.booleans()):
        return PolynomialCurve(tuple(draw(st.lists(seconds, min_size=1, max_size=3))))
    powers = sorted({0, *draw(st.sets(st.integers(1, 20), max_size=5))})
    ys = sorted(draw(st.lists(seconds, min_size=len(powers), max_size=len(powers))))
    points = tuple((2.0**power, y) for power, y in zip(powers, ys, strict=True))
    return TableCurve(points, draw(st.sampled_from(Scale)))


profiles = st.builds(
    InstanceProfile,
    name=texts,
    model=texts,
    hardware=texts,
    gpus=st.integers(1, 1024),
    prefill_s=curves(),
    kv_bytes=curves(),
    decode=st.none() | st.builds(DecodeProfile, curves(), batches),
    origin=st.sampled_from(Origin),
    source=texts,
)
provenances = st.builds(
    Provenance,
    measured_at=st.just("") | texts,
    machine=st.builds(Machine, texts, texts, counts),
    versions=st.dictionaries(texts, texts, max_size=3).map(lambda d: tuple(d.items())),
    complete=st.booleans(),
    samples=st.builds(
        Samples,
        st.lists(st.builds(PrefillSample, counts, seconds), max_size=3).map(tuple),
        st.lists(st.builds(DecodeSample, counts, seconds, counts), max_size=3).map(tuple),
    ),
)


@given(profiles, provenances)
def test_what_is_written_is_read_back(profile: InstanceProfile, how: Provenance) -> None:
    document = parse_document(render_profile(profile, how), WHERE)
    assert document.profile == profile
    assert document.provenance == how


@pytest.mark.parametrize("name", catalog_names())
def test_the_catalog_can_be_written(name: str) -> None:
    assert parse_profile(render_profile(find_profile(name)), WHERE) == find_profile(name)


def test_points_stay_on_one_line() -> None:
    assert "\n      [1024.0, 0.44],\n" in render_profile(find_profile("paper-1t-h200"))


def changed(**changes: Any) -> str:
    """A good document with some fields changed; None of a required one takes it out."""
    how = Provenance(
        "2026-01-01T00:00:00Z",
        Machine("cpu", "gpu", 1),
        (("sglang", "0.5.23"),),
        samples=Samples((PrefillSample(8, 0.1),), (DecodeSample(1, 0.1, 8),)),
    )
    document = json.loads(render_profile(find_profile("paper-1t-h20"), how))
    return json.dumps({k: v for k, v in (document | changes).items() if v != "absent"})


POINTS = [[1, 1.0], [2, 2.0]]
BAD = [
    ({"format": "other"}, "format"),
    ({"version": 2}, "version"),
    ({"version": "absent"}, "version"),
    ({"version": True}, "version"),
    ({"name": "absent"}, "name"),
    ({"name": ""}, "name"),
    ({"name": "two\nlines"}, "name"),
    ({"model": 3}, "model"),
    ({"source": None}, "source"),
    ({"gpus": 0}, "gpus"),
    ({"gpus": 1.5}, "gpus"),
    ({"gpus": True}, "gpus"),
    ({"gpus": 10**30}, "gpus"),
    ({"origin": "guessed"}, "origin"),
    ({"prefil_s": 1}, "'prefil_s'"),
    ({"prefill_s": "absent"}, "prefill_s"),
    ({"prefill_s": None}, "prefill_s"),
    ({"prefill_s": {}}, "prefill_s"),
    ({"prefill_s": {"points": []}}, "prefill_s"),
    ({"prefill_s": {"points": [[1, float("nan")]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[1, float("inf")]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[1, -1.0]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[1, 0]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[0, 1]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[1, 10**400]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[2, 1.0], [1, 2.0]]}}, "prefill_s"),
    ({"prefill_s": {"points": [[1, 2.0], [2, 1.0]]}}, "prefill_s"),
    ({"prefill_s": {"points": POINTS, "scale": "cubic"}}, "prefill_s"),
    ({"prefill_s": {"points": "x"}}, "prefill_s"),
    ({"prefill_s": {"points": [[10, 1.0], [20, 3.0]], "scale": "linear"}}, "prefill_s"),
    ({"prefill_s": {"points": [[10, 1.0], [10.001, 9.0]]}}, "prefill_s"),
    ({"prefill_s": {"coefficients": []}}, "prefill_s"),
    ({"prefill_s": {"coefficients": [float("nan")]}}, "prefill_s"),
    ({"prefill_s": {"coefficients": [-1.0]}}, "prefill_s"),
    ({"prefill_s": {"coefficients": [1e308, 1e308]}}, "prefill_s"),
    ({"kv_bytes": {"coefficients": [1.0, -1e-9]}}, "kv_bytes"),
    ({"decode": "absent"}, "decode"),
    ({"decode": []}, "decode"),
    ({"decode": {"max_batch": 1}}, "decode: step_s"),
    ({"decode": {"step_s": {"points": POINTS}, "max_batch": 0}}, "decode: max_batch"),
    ({"decode": {"step_s": {"points": [[1, -1]]}, "max_batch": 1}}, "decode: step_s"),
    ({"machine": 0}, "machine"),
    ({"machine": {"memory_bytes": -1}}, "machine: memory_bytes"),
    ({"versions": []}, "versions"),
    ({"versions": {"sglang": 5}}, "versions: sglang"),
    ({"complete": 1}, "complete"),
    ({"samples": {"prefill": 1}}, "samples: prefill"),
    ({"samples": {"prefill": [1]}}, r"samples: prefill\[0\]"),
    ({"samples": {"prefill": [{"tokens": 1}]}}, r"samples: prefill\[0\]: ttft_s"),
    (
        {"samples": {"prefill": [{"tokens": 1, "ttft_s": float("nan")}]}},
        r"samples: prefill\[0\]: ttft_s",
    ),
    (
        {"samples": {"decode": [{"batch": 1, "step_s": 0, "context_tokens": 1}]}},
        r"samples: decode\[0\]: step_s",
    ),
]


@pytest.mark.parametrize(("changes", "field"), BAD, ids=[str(changes)[:70] for changes, _ in BAD])
def test_a_bad_value_is_one_line_with_file_and_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=rf"^p\.json: {field}: ") as caught:
        parse_profile(changed(**changes), WHERE)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", "[" * 100_000, b"\xff\xfe\x00", "1" * 5000],
    ids=lambda text: repr(text)[:12],
)
def test_what_is_no_profile_is_one_line(text: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"^p\.json: ") as caught:
        parse_profile(text, WHERE)
    assert "\n" not in str(caught.value)


def test_provenance_may_be_left_out() -> None:
    fields = ("measured_at", "machine", "versions", "complete", "samples")
    document = parse_document(changed(**dict.fromkeys(fields, "absent")), WHERE)
    assert document.provenance == Provenance()
