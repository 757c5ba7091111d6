import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.profile import PolynomialCurve
from prfaas.workload import (
    EmpiricalLengths,
    Lengths,
    TruncatedLogNormal,
    expect,
    mean_above,
    mean_below,
    mean_of,
    quantile,
)

PAPER = TruncatedLogNormal(9.90, 1.00, 128, 131072)

log_normals = st.builds(
    TruncatedLogNormal,
    mu=st.floats(5, 11),
    sigma=st.floats(0.2, 2),
    low=st.floats(1, 200),
    high=st.floats(1e5, 1e6),
)
empirical = st.lists(st.integers(0, 1 << 20), min_size=1, max_size=50).map(EmpiricalLengths)
distributions = st.one_of(log_normals, empirical)
thresholds = st.floats(0, 2e6)


def test_the_papers_workload_has_the_papers_figures() -> None:
    assert float(PAPER.above(np.array(19400.0))) == pytest.approx(0.4957, abs=1e-4)
    assert mean_above(PAPER, 19400) == pytest.approx(45046, abs=1)
    assert mean_below(PAPER, 19400) == pytest.approx(10224, abs=1)
    assert mean_of(PAPER) == pytest.approx(27486, abs=1)


def test_what_was_seen_is_counted() -> None:
    seen = EmpiricalLengths([40, 10, 10])
    assert seen.above(np.array([0.0, 9.9, 10.0, 39.0, 40.0])) == pytest.approx(
        [1, 1, 1 / 3, 1 / 3, 0]
    )
    assert seen.sum_above(np.array([0.0, 10.0, 40.0])) == pytest.approx([20, 40 / 3, 0])
    assert mean_above(seen, 10) == pytest.approx(40)
    assert mean_below(seen, 10) == pytest.approx(10)
    assert [quantile(seen, q) for q in (0, 0.5, 2 / 3, 0.7, 1)] == [10, 10, 10, 40, 40]


@given(distributions, thresholds)
def test_the_parts_below_and_above_make_the_whole(lengths: Lengths, t: float) -> None:
    share = float(lengths.above(np.array(t)))
    assert 0 <= share <= 1
    whole = share * mean_above(lengths, t) + (1 - share) * mean_below(lengths, t)
    assert whole == pytest.approx(mean_of(lengths), rel=1e-9)
    if share > 1e-9:
        assert mean_above(lengths, t) >= t * (1 - 1e-6)
    if share < 1 - 1e-9:
        assert mean_below(lengths, t) <= t * (1 + 1e-6)


@given(distributions, thresholds, thresholds)
def test_less_is_above_a_higher_threshold(lengths: Lengths, s: float, t: float) -> None:
    low, high = min(s, t), max(s, t)
    many = np.array([low, high])
    above, sums = lengths.above(many), lengths.sum_above(many)
    assert above[0] >= above[1] - 1e-12
    assert sums[0] >= sums[1] - 1e-6
    assert above == pytest.approx([float(lengths.above(np.array(one))) for one in many])


@given(distributions)
def test_cells_stand_for_the_distribution(lengths: Lengths) -> None:
    values, weights = lengths.cells()
    assert np.all(np.diff(values) > 0)
    assert weights.sum() == pytest.approx(1)
    assert float(values @ weights) == pytest.approx(mean_of(lengths), rel=1e-6)
    twice = PolynomialCurve((1.0, 2.0))
    # A curve's value below 1 is its value at 1.
    assert expect(lengths, twice) >= 1 + 2 * mean_of(lengths) - 1e-6 * mean_of(lengths)


def test_quadrature_of_a_curved_function_is_close() -> None:
    square = PolynomialCurve((0.0, 0.0, 1.0))
    rng = np.random.default_rng(1)
    edges = np.exp(np.linspace(math.log(PAPER.low), math.log(PAPER.high), 200_001))
    middles = np.sqrt(edges[1:] * edges[:-1])
    mass = -np.diff(PAPER.above(edges))
    assert expect(PAPER, square) == pytest.approx(float((middles**2 * mass).sum()), rel=1e-4)
    assert PAPER.sample(rng, 10).shape == (10,)


@given(st.floats(8, 12), st.floats(0.5, 2))
def test_the_upper_end_is_as_exact_as_the_lower(mu: float, sigma: float) -> None:
    lengths = TruncatedLogNormal(mu, sigma, 128.5, 131072)
    near = lengths.high * (1 - 1e-6)
    assert mean_above(lengths, near) == pytest.approx(lengths.high, rel=2e-6)
    assert mean_above(lengths, lengths.high) == 0
    assert mean_below(lengths, lengths.low) == 0


@given(distributions, st.integers(0, 2**32))
def test_draws_are_whole_positive_and_seeded(lengths: Lengths, seed: int) -> None:
    drawn = lengths.sample(np.random.default_rng(seed), 50)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert np.array_equal(drawn, lengths.sample(np.random.default_rng(seed), 50))
    assert len(lengths.sample(np.random.default_rng(seed), 0)) == 0


def test_draws_have_the_mean_and_the_share() -> None:
    drawn = PAPER.sample(np.random.default_rng(3), 200_000)
    assert drawn.mean() == pytest.approx(27486, rel=0.01)
    assert (drawn > 19400).mean() == pytest.approx(0.4957, abs=0.01)
    assert drawn.min() >= 128
    assert drawn.max() <= 131072
    seen = EmpiricalLengths([10, 10, 40]).sample(np.random.default_rng(3), 10_000)
    assert (seen == 40).mean() == pytest.approx(1 / 3, abs=0.02)


@given(distributions, st.floats(0, 1))
def test_a_quantile_is_not_exceeded_by_its_share(lengths: Lengths, q: float) -> None:
    # A quantile is the mean length of a cell: it may be off by what one cell weighs.
    heaviest = 0.0 if isinstance(lengths, EmpiricalLengths) else float(lengths.cells()[1].max())
    assert 1 - float(lengths.above(np.array(quantile(lengths, q)))) >= q - heaviest - 1e-9


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ((math.nan, 1.0, 1.0, 9.0), "mu"),
        ((1.0, math.inf, 1.0, 9.0), "sigma"),
        ((1.0, 0.0, 1.0, 9.0), "sigma"),
        ((1.0, 1e3, 1.0, 9.0), "sigma"),
        ((1.0, 1.0, 0.0, 9.0), "low"),
        ((1.0, 1.0, 9.0, 9.0), "low"),
        ((1.0, 1.0, 1.0, 1e300), "high"),
        ((30.0, 1.0, 1.0, 9.0), "likely"),
        ((800.0, 1.0, 1.0, 9.0), "likely"),
    ],
)
def test_senseless_parameters_are_refused(
    fields: tuple[float, float, float, float], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        TruncatedLogNormal(*fields)


@pytest.mark.parametrize("tokens", [[], [-1], [math.nan], [math.inf], [[1]]])
def test_senseless_lengths_are_refused(tokens: list[int]) -> None:
    with pytest.raises(ConfigError, match="lengths"):
        EmpiricalLengths(tokens)
