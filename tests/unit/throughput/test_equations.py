import doctest

import numpy as np
import pytest

from prfaas.profile.catalog import find_profile
from prfaas.throughput import PrefillCluster, equations
from prfaas.throughput.clusters import Expectation
from prfaas.throughput.split import split_at
from prfaas.throughput.ttft import Arrival, arrival_of, ttft_of
from prfaas.workload import EmpiricalLengths, TruncatedLogNormal, expect

PAPER = TruncatedLogNormal(9.90, 1.00, 128, 131072)


def test_doctests() -> None:
    assert doctest.testmod(equations).failed == 0


def test_equation_2_gives_the_papers_fleets() -> None:
    """Source: PrfaaS §2: 512 H200 at 32K tokens."""
    for name, gbps in (("minimax-m2.5", 3_800), ("qwen3-235b", 2_100), ("ring-2.5-1t", 170)):
        profile = find_profile(f"paper-{name}-h200")
        egress = equations.egress_bytes_per_s(512, profile, 32 * 1024)
        assert egress * 8 / 1e9 == pytest.approx(gbps, rel=0.03)
    ring = find_profile("paper-ring-2.5-1t-h200")
    assert equations.egress_bytes_per_s(512, ring, 128 * 1024) * 8 < 100e9
    assert equations.egress_bytes_per_s(10_000, ring, 128 * 1024) * 8 == pytest.approx(
        1.8e12, rel=0.03
    )


def test_a_stage_without_traffic_does_not_limit() -> None:
    share = np.array([0.0, 0.5, 1.0])
    theta = np.array([0.0, 1.0, 2.0])
    assert equations.offload_limit(theta, share).tolist() == [np.inf, 2.0, 2.0]
    assert equations.local_limit(theta, share).tolist() == [0.0, 2.0, np.inf]


def test_exact_means_agree_with_drawing() -> None:
    rng = np.random.default_rng(7)
    drawn = PAPER.sample(rng, 400_000).astype(float)
    curve = find_profile("paper-1t-h20").prefill_s.over
    parts = split_at(PAPER, np.array([0.0, 5000.0, 19400.0, 90000.0]), Expectation.EXACT)
    for index, threshold in enumerate(parts.thresholds):
        above = drawn[drawn > threshold]
        assert parts.long_mean(curve)[index] == pytest.approx(curve(above).mean(), rel=0.01)
        if threshold > 0:
            below = drawn[drawn <= threshold]
            assert parts.short_mean(curve)[index] == pytest.approx(curve(below).mean(), rel=0.01)


def test_exact_means_have_no_steps_between_quadrature_cells() -> None:
    curve = find_profile("paper-1t-h200").prefill_s.over
    parts = split_at(PAPER, np.arange(19_000.0, 20_000.0), Expectation.EXACT)
    steps = np.diff(parts.long_mean(curve))
    assert np.all(steps > 0)
    assert steps.max() / steps.min() < 1.2


def test_bare_ttft_is_the_mixture_of_both_paths() -> None:
    lengths = EmpiricalLengths([100, 200, 300, 400])
    arrival = Arrival(local=lambda tokens: tokens, remote=lambda tokens: tokens / 10)
    at = np.array([0.0, 200.0, 1e9])
    assert arrival.mean_s(lengths, at).tolist() == pytest.approx([25.0, 92.5, 250.0])
    assert arrival.share_within(lengths, at, 100.0).tolist() == pytest.approx([1.0, 0.75, 0.25])
    assert arrival.quantile_s(lengths, 200.0, 0.75) == 100
    assert arrival.quantile_s(lengths, 200.0, 0.76) == 200


def test_an_offloaded_prompt_counts_as_on_the_slowest_cluster_in_use() -> None:
    fast, slow = find_profile("paper-1t-h200"), find_profile("paper-1t-h20")
    used = [PrefillCluster("a", fast, 1, 1e9), PrefillCluster("b", fast, 1, 1e7)]
    unused = PrefillCluster("c", slow, 0, 1e3)
    tokens = np.array([32768.0])
    seconds = arrival_of([*used, unused], slow, transfer=True).remote(tokens)
    assert seconds[0] == pytest.approx(1.84 + 701.3 * 2**20 / 1e7)
    bare = ttft_of([*used, unused], slow, PAPER, 0.0)
    assert bare.prefill_mean_s == pytest.approx(expect(PAPER, fast.prefill_s))
    assert bare.arrival_mean_s > bare.prefill_mean_s
