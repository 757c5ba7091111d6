import math

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.workload import EmpiricalLengths, TruncatedLogNormal, mean_above, mean_of
from prfaas.workload.sketch import HistogramLengths, LengthSketch, MeanSketch

PAPER = TruncatedLogNormal(9.90, 1.00, 128, 131072)


def of(sketch: LengthSketch) -> HistogramLengths:
    lengths = sketch.lengths()
    assert lengths is not None
    return lengths


def test_a_sketch_is_within_a_cell_of_what_was_seen() -> None:
    drawn = PAPER.sample(np.random.default_rng(1), 20_000)
    sketch = LengthSketch(half_life_s=1e12)
    for tokens in drawn.tolist():
        sketch.add(tokens, at_s=0.0)
    seen, lengths = EmpiricalLengths(drawn), of(sketch)
    assert mean_of(lengths) == pytest.approx(mean_of(seen))
    for t in (0.0, 1000.0, 19_400.0, 60_000.0):
        assert float(lengths.above(np.array(t))) == pytest.approx(
            float(seen.above(np.array(t))), abs=0.02
        )
        assert mean_above(lengths, t) == pytest.approx(mean_above(seen, t), rel=0.02)


def test_the_old_fades_away() -> None:
    sketch = LengthSketch(half_life_s=60.0)
    for _ in range(100):
        sketch.add(100, at_s=0.0)
    for _ in range(100):
        sketch.add(10_000, at_s=600.0)
    share = float(of(sketch).above(np.array(1000.0)))
    assert share == pytest.approx(1 / (1 + 2**-10))
    assert sketch.weight == pytest.approx(100 * (1 + 2**-10))
    sketch.add(10_000, at_s=1e6)
    assert of(sketch).cells()[0].tolist() == [10_000]


@pytest.mark.parametrize("half_life_s", [0.5, 10.0, 7000.0, math.inf])
def test_fading_is_what_its_definition_says_over_thousands_of_half_lives(
    half_life_s: float,
) -> None:
    lengths, mean = LengthSketch(half_life_s=half_life_s), MeanSketch(half_life_s=half_life_s)
    rng = np.random.default_rng(1)
    times, values = np.cumsum(rng.exponential(3.0, 500)), rng.integers(1, 100_000, 500)
    for at_s, value in zip(times, values, strict=True):
        lengths.add(float(value), at_s=at_s)
        mean.add(float(value), at_s=at_s)
    weights = 0.5 ** ((times[-1] - times) / half_life_s)
    assert lengths.weight == pytest.approx(weights.sum())
    assert mean.mean() == pytest.approx(np.average(values, weights=weights))
    assert mean_of(of(lengths)) == pytest.approx(np.average(values, weights=weights))


def test_time_that_goes_back_counts_as_standing_still() -> None:
    sketch = LengthSketch(half_life_s=1.0)
    sketch.add(10, at_s=100.0)
    sketch.add(1000, at_s=0.0)
    assert of(sketch).cells()[1].tolist() == [0.5, 0.5]
    early = LengthSketch(half_life_s=1.0)
    early.add(10, at_s=5.0)
    assert early.per_s(since_s=10.0, at_s=5.0) == 0.0


def test_memory_is_bounded_and_no_length_is_too_large() -> None:
    sketch = LengthSketch(half_life_s=60.0)
    for tokens in (0, 1, 1 << 40, 5e11):
        sketch.add(tokens, at_s=0.0)
    lengths = of(sketch)
    assert len(lengths.cells()[0]) == 2
    assert mean_of(lengths) == pytest.approx((2 + (1 << 40) + 5e11) / 4)


def test_nothing_seen_is_none() -> None:
    assert LengthSketch(half_life_s=1.0).lengths() is None
    assert MeanSketch(half_life_s=1.0).mean() is None
    with pytest.raises(ConfigError):
        HistogramLengths(np.empty(0), np.empty(0))


@pytest.mark.parametrize("half_life_s", [0.0, -1.0, float("nan")])
def test_a_half_life_is_positive(half_life_s: float) -> None:
    with pytest.raises(ConfigError, match="half_life_s"):
        LengthSketch(half_life_s=half_life_s)


def test_samples_follow_the_sketch() -> None:
    lengths = HistogramLengths(np.array([10.0, 20.4]), np.array([3.0, 1.0]))
    drawn = lengths.sample(np.random.default_rng(2), 10_000)
    assert set(drawn.tolist()) == {10, 20}
    assert np.mean(drawn == 10) == pytest.approx(0.75, abs=0.02)


def test_a_rate_is_right_from_the_begin_and_follows_changes() -> None:
    rng = np.random.default_rng(4)
    rate = LengthSketch(half_life_s=60.0)
    now_s = 0.0
    while now_s < 30:
        now_s += rng.exponential(1 / 50)
        rate.add(7, at_s=now_s)
    assert rate.per_s(since_s=0.0, at_s=now_s) == pytest.approx(50, rel=0.1)
    while now_s < 900:
        now_s += rng.exponential(1 / 5)
        rate.add(7, at_s=now_s)
    assert rate.per_s(since_s=0.0, at_s=now_s) == pytest.approx(5, rel=0.25)
    assert rate.per_s(since_s=0.0, at_s=now_s + 600) < 0.01
