import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.profile import PolynomialCurve, Scale, TableCurve, constant, curve_from_json, table
from prfaas.profile.curve import Curve

PREFILL = table([(1024, 0.44), (8192, 0.72), (32768, 1.84), (131072, 7.40)])


@st.composite
def table_curves(draw: st.DrawFn) -> TableCurve:
    xs = draw(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=8, unique=True))
    ys = draw(st.lists(st.floats(1e-3, 1e6), min_size=len(xs), max_size=len(xs)))
    points = tuple((float(x), y) for x, y in zip(sorted(xs), ys, strict=True))
    return TableCurve(points, draw(st.sampled_from(Scale)))


polynomials = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4).map(
    lambda coefficients: PolynomialCurve(tuple(coefficients))
)
curves = st.one_of(table_curves(), polynomials)


def test_a_table_goes_through_its_points() -> None:
    for x, y in PREFILL.points:
        assert PREFILL.at(x) == y
    assert PREFILL.over(np.array([1024.0, 131072.0])) == pytest.approx([0.44, 7.40])


def test_log_pieces_are_power_laws_and_linear_ones_straight() -> None:
    middle = math.sqrt(8192 * 32768)
    assert PREFILL.at(middle) == pytest.approx(math.sqrt(0.72 * 1.84))
    straight = TableCurve(((10, 1.0), (20, 2.0), (30, 5.0)), Scale.LINEAR)
    assert straight.at(15) == pytest.approx(1.5)
    assert straight.at(25) == pytest.approx(3.5)


def test_outside_its_points_a_curve_goes_on_as_its_outermost_piece() -> None:
    slope = math.log(7.40 / 1.84) / math.log(131072 / 32768)
    assert PREFILL.at(262144) == pytest.approx(7.40 * 2**slope)
    falling = TableCurve(((10, 2.0), (20, 1.0)), Scale.LINEAR)
    assert falling.at(1000) == 0
    assert falling.over(np.array([1000.0]))[0] == 0
    assert constant(0.025).at(1) == constant(0.025).at(1e9) == 0.025


def test_below_1_the_value_at_1() -> None:
    for curve in (PREFILL, PolynomialCurve((1.0, 0.5)), TableCurve(((1, 2.0), (3, 4.0)))):
        assert curve.at(0) == curve.at(-5) == curve.at(1)
        assert curve.over(np.array([0.0]))[0] == pytest.approx(curve.at(1))


def test_a_polynomial_is_never_negative() -> None:
    falling = PolynomialCurve((10.0, -1.0))
    assert falling.at(4) == 6
    assert falling.at(50) == 0
    assert falling.over(np.array([4.0, 50.0])).tolist() == [6, 0]


@given(curves, st.lists(st.floats(0, 1e7), min_size=1, max_size=20))
def test_one_value_and_many_are_the_same(curve: Curve, xs: list[float]) -> None:
    many = curve.over(np.array(xs))
    assert many.shape == (len(xs),)
    assert many == pytest.approx([curve.at(x) for x in xs], rel=1e-9, abs=1e-6)
    assert np.all(many >= 0)


@given(curves)
def test_json_gives_the_same_curve_back(curve: Curve) -> None:
    assert curve_from_json(json.loads(json.dumps(curve.to_json()))) == curve


@given(table_curves(), st.floats(1, 1e6))
def test_within_its_points_a_curve_stays_within_their_values(curve: TableCurve, x: float) -> None:
    xs, ys = zip(*curve.points, strict=True)
    x = min(max(x, xs[0]), xs[-1])
    assert min(ys) * (1 - 1e-9) <= curve.at(x) <= max(ys) * (1 + 1e-9)


def test_a_steep_curve_ends_in_infinity_not_in_an_exception() -> None:
    steep = TableCurve(((1, 1e-300), (1.001, 1e300)))
    assert steep.at(1e9) == math.inf
    assert steep.over(np.array([1e9]))[0] == math.inf


@pytest.mark.parametrize(
    "points",
    [
        (),
        ((0, 1.0),),
        ((1, 0.0),),
        ((1, -1.0),),
        ((1, math.nan),),
        ((math.inf, 1.0),),
        ((2, 1.0), (1, 1.0)),
        ((1, 1.0), (1, 2.0)),
        ((1, 1.0), (1 + 1e-12, 2.0)),
    ],
)
def test_senseless_points_are_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ConfigError, match="points"):
        TableCurve(points)


@pytest.mark.parametrize("coefficients", [(), (math.nan,), (1.0, math.inf)])
def test_senseless_coefficients_are_refused(coefficients: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="coefficients"):
        PolynomialCurve(coefficients)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {},
        {"points": 5},
        {"points": [[1]]},
        {"points": [["1", 2]]},
        {"points": [[True, 2]]},
        {"points": [[1, 10**400]]},
        {"points": [[1, 2]], "scale": "cubic"},
        {"points": [[1, 2]], "scale": []},
        {"coefficients": 5},
        {"coefficients": ["x"]},
    ],
)
def test_json_that_is_no_curve_is_refused(raw: object) -> None:
    with pytest.raises(ConfigError, match="curve"):
        curve_from_json(raw)
