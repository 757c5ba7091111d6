import math
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prfaas.errors import ConfigError
from prfaas.workload import Arrivals, Deterministic, Diurnal, GammaBursts, OnOff, Poisson, Replay

RECORDED = np.array([3.0, 3.0, 4.5, 7.0])

PROCESSES: dict[str, Arrivals] = {
    "poisson": Poisson(3.0),
    "deterministic": Deterministic(3.0),
    "smooth": GammaBursts(3.0, 0.5),
    "bursts": GammaBursts(3.0, 4.0),
    "on-off": OnOff(3.0, on_s=2.0, off_s=8.0, burst_factor=4.0),
    "silent-off": OnOff(3.0, on_s=2.0, off_s=8.0, burst_factor=5.0),
    "diurnal": Diurnal(3.0, period_s=600.0, amplitude=0.9),
    "replay": Replay(np.cumsum(np.full(100, 1 / 3))),
}
every = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)


@every
def test_the_mean_rate_is_the_rate(process: Arrivals) -> None:
    times = process.times(np.random.default_rng(5), 200_000)
    assert 200_000 / times[-1] == pytest.approx(3.0, rel=0.05)


@every
def test_times_are_in_order_and_seeded(process: Arrivals) -> None:
    times = process.times(np.random.default_rng(5), 2000)
    assert times.dtype == np.float64
    assert times.shape == (2000,)
    assert times[0] >= 0
    assert np.all(np.diff(times) >= 0)
    assert np.array_equal(times, process.times(np.random.default_rng(5), 2000))
    if not isinstance(process, Deterministic | Replay):
        assert not np.array_equal(times, process.times(np.random.default_rng(6), 2000))


@every
def test_counts_are_kept(process: Arrivals) -> None:
    for count in (0, 1, 17):
        assert len(process.times(np.random.default_rng(1), count)) == count
    with pytest.raises(ConfigError, match="count"):
        process.times(np.random.default_rng(1), -1)


@every
def test_a_million_is_quick(process: Arrivals) -> None:
    begin_s = time.process_time()
    process.times(np.random.default_rng(1), 1_000_000)
    assert time.process_time() - begin_s < 2


def gaps_cv(process: Arrivals) -> float:
    gaps = np.diff(process.times(np.random.default_rng(5), 200_000))
    return float(gaps.std() / gaps.mean())


def test_gaps_vary_as_asked() -> None:
    assert gaps_cv(Poisson(2.0)) == pytest.approx(1, rel=0.02)
    assert gaps_cv(Deterministic(2.0)) == pytest.approx(0, abs=1e-6)
    assert gaps_cv(GammaBursts(2.0, 0.3)) == pytest.approx(0.3, rel=0.02)
    assert gaps_cv(GammaBursts(2.0, 3.0)) == pytest.approx(3, rel=0.05)
    assert gaps_cv(OnOff(2.0, 5.0, 5.0, 1.0)) == pytest.approx(1, rel=0.02)
    assert gaps_cv(OnOff(2.0, 10.0, 30.0, 3.9)) > 1.5


def test_bursts_come_in_phases_of_the_given_length() -> None:
    times = OnOff(10.0, on_s=50.0, off_s=150.0, burst_factor=4.0).times(
        np.random.default_rng(5), 100_000
    )
    gaps = np.diff(times)
    silences = gaps[gaps > 5]
    assert silences.mean() == pytest.approx(150 + 5, rel=0.2)
    within = gaps[gaps <= 5]
    assert 1 / within.mean() == pytest.approx(40, rel=0.05)


def test_the_day_has_its_peak_and_its_trough() -> None:
    times = Diurnal(10.0, period_s=100.0, amplitude=1.0).times(np.random.default_rng(5), 200_000)
    counts, _ = np.histogram(times % 100, bins=4, range=(0, 100))
    # Of 1 + sin over a period, the first half holds 1/2 + 1/pi.
    first_half = (counts[0] + counts[1]) / counts.sum()
    assert first_half == pytest.approx(0.5 + 1 / math.pi, abs=0.01)


def test_a_replay_is_scaled_and_begins_again() -> None:
    replay = Replay(RECORDED, speed=2.0)
    times = replay.times(np.random.default_rng(1), 9)
    lap = 2.0 * 4 / 3
    assert times == pytest.approx([0, 0, 0.75, 2, lap, lap, lap + 0.75, lap + 2, 2 * lap])
    assert Replay(np.array([5.0])).times(np.random.default_rng(1), 1) == [0.0]
    with pytest.raises(ConfigError, match="spans no time"):
        Replay(np.array([5.0, 5.0])).times(np.random.default_rng(1), 3)


@given(
    st.floats(1e-3, 1e3),
    st.floats(0.5, 100),
    st.floats(0.5, 100),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_any_on_off_process_gives_what_is_asked(
    rate: float, on_s: float, off_s: float, burst: float, seed: int
) -> None:
    if rate * (on_s + off_s) < 0.5:
        return
    process = OnOff(rate, on_s, off_s, 1 + burst * off_s / on_s)
    times = process.times(np.random.default_rng(seed), 50)
    assert len(times) == 50
    assert np.all(np.isfinite(times))
    assert np.all(np.diff(times) >= 0)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Poisson(0.0), "rate_per_s"),
        (lambda: Poisson(-1.0), "rate_per_s"),
        (lambda: Poisson(math.nan), "rate_per_s"),
        (lambda: Poisson(math.inf), "rate_per_s"),
        (lambda: Poisson(1e-300), "rate_per_s"),
        (lambda: Deterministic(0.0), "rate_per_s"),
        (lambda: GammaBursts(0.0, 1.0), "rate_per_s"),
        (lambda: GammaBursts(1.0, 0.0), "cv"),
        (lambda: GammaBursts(1.0, math.nan), "cv"),
        (lambda: GammaBursts(1.0, 1e200), "cv"),
        (lambda: OnOff(math.nan, 1.0, 1.0, 1.0), "rate_per_s"),
        (lambda: OnOff(1.0, 0.0, 1.0, 1.0), "on_s"),
        (lambda: OnOff(1.0, 1.0, math.inf, 1.0), "off_s"),
        (lambda: OnOff(1.0, 1.0, 1.0, 0.5), "burst_factor"),
        (lambda: OnOff(1.0, 1.0, 1.0, 2.1), "burst_factor"),
        (lambda: OnOff(1e-6, 1.0, 1.0, 2.0), "on_s, off_s"),
        (lambda: Diurnal(-1.0, 1.0, 0.5), "rate_per_s"),
        (lambda: Diurnal(1.0, 0.0, 0.5), "period_s"),
        (lambda: Diurnal(1.0, 1.0, 1.5), "amplitude"),
        (lambda: Diurnal(1.0, 1.0, math.nan), "amplitude"),
        (lambda: Replay(np.array([])), "recorded_s: empty"),
        (lambda: Replay(np.array([2.0, 1.0])), "recorded_s"),
        (lambda: Replay(np.array([1.0, math.nan])), "recorded_s"),
        (lambda: Replay(np.array([1.0]), speed=0.0), "speed"),
    ],
)
def test_senseless_parameters_are_refused(make: Callable[[], Arrivals], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        make()
