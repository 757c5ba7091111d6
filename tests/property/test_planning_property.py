"""Any site and any demand: laws of the equations, of the search and of the long-term scheduler."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prfaas.planning import Constraints, PdPool, Site, plan
from prfaas.planning.replan import (
    Observation,
    ReplanSettings,
    Running,
    Slo,
    StageSeen,
    replan,
)
from prfaas.profile import DecodeProfile, InstanceProfile, Origin, PolynomialCurve
from prfaas.throughput import Demand, Expectation, PrefillCluster, Stage, stages
from prfaas.workload import EmpiricalLengths, Lengths, TruncatedLogNormal

SOME = settings(max_examples=40, deadline=None)
NEARLY = 1 + 1e-9


def profiles() -> st.SearchStrategy[InstanceProfile]:
    numbers = st.floats(1e-6, 1e-2)
    return st.builds(
        lambda base, slope, fixed, size, step: InstanceProfile(
            name="p",
            model="m",
            hardware="h",
            gpus=1,
            prefill_s=PolynomialCurve((base, slope)),
            kv_bytes=PolynomialCurve((fixed, size)),
            decode=DecodeProfile(PolynomialCurve((step, step / 20)), max_batch=64),
            origin=Origin.ESTIMATED,
            source="",
        ),
        numbers,
        numbers,
        st.floats(0, 1e8),
        st.floats(1, 1e5),
        st.floats(1e-3, 2e-2),
    )


def distributions() -> st.SearchStrategy[Lengths]:
    seen = st.lists(st.integers(0, 50_000), min_size=1, max_size=30)
    log_normals = st.builds(
        TruncatedLogNormal, st.floats(4, 10), st.floats(0.3, 2), st.just(10), st.just(60_000)
    )
    return st.one_of(seen.map(EmpiricalLengths), log_normals)


demands = st.builds(Demand, distributions(), st.floats(1, 2000), st.floats(2e-3, 0.1))
remotes = st.lists(
    st.tuples(profiles(), st.integers(0, 6), st.floats(0, 1e10), st.floats(0.1, 1)),
    max_size=3,
).map(lambda rows: tuple(PrefillCluster(f"r{index}", *row) for index, row in enumerate(rows)))
sites = st.builds(
    lambda found, profile, count: Site(found, PdPool("pd", profile, count)),
    remotes,
    profiles(),
    st.integers(1, 8),
)
thresholds = st.one_of(st.integers(0, 70_000).map(float), st.just(float("inf")))
expectations = st.sampled_from(list(Expectation))


@SOME
@given(sites, demands, thresholds, expectations, st.integers(0, 8))
def test_at_lambda_max_nothing_is_over_full_and_the_bottleneck_is_full(
    site: Site, demand: Demand, threshold: float, expectation: Expectation, n_p: int
) -> None:
    pd = site.pd.divided(min(n_p, site.pd.instances), max(site.pd.instances - n_p, 0))
    at = stages(site.remotes, pd, demand, threshold, expectation=expectation)
    used = [at.utilisation.of(stage) for stage in Stage]
    assert all(0 <= value <= NEARLY for value in used)
    if at.lambda_max > 0:
        assert at.utilisation.of(at.bottleneck) == pytest.approx(1.0)
    for cluster, remote in zip(at.clusters, site.remotes, strict=True):
        assert cluster.egress_bytes_per_s <= remote.usable_bytes_per_s * NEARLY
    assert 0 <= at.offload_fraction <= 1
    shares = sum(cluster.share for cluster in at.clusters)
    assert shares == pytest.approx(1.0) or at.theta_prfaas == 0
    mean = at.offload_fraction * at.l_long_tokens + (1 - at.offload_fraction) * at.l_short_tokens
    assert mean == pytest.approx(float(demand.lengths.sum_above(np.array(0.0))), abs=1e-6)


@SOME
@given(sites, demands, thresholds, expectations)
def test_more_of_anything_never_lets_fewer_through(
    site: Site, demand: Demand, threshold: float, expectation: Expectation
) -> None:
    def rate(remotes: tuple[PrefillCluster, ...], n_p: int, n_d: int) -> float:
        pd = site.pd.divided(n_p, n_d)
        return stages(remotes, pd, demand, threshold, expectation=expectation).lambda_max

    before = rate(site.remotes, 2, 3)
    assert rate(site.remotes, 3, 3) * NEARLY >= before
    assert rate(site.remotes, 2, 4) * NEARLY >= before
    for index, remote in enumerate(site.remotes):
        for larger in (
            replace(remote, instances=remote.instances + 1),
            replace(remote, egress_bytes_per_s=remote.egress_bytes_per_s * 2 + 1),
        ):
            grown = (*site.remotes[:index], larger, *site.remotes[index + 1 :])
            assert rate(grown, 2, 3) * NEARLY >= before


@SOME
@given(sites, demands, expectations, st.data())
def test_no_other_choice_beats_the_plan(
    site: Site, demand: Demand, expectation: Expectation, data: st.DataObject
) -> None:
    held = Constraints(threshold_step_tokens=500)
    found = plan(site, demand, held, expectation=expectation)
    assert found.n_p + found.n_d == site.pd.instances
    threshold = data.draw(st.integers(0, 130)) * 500
    n_p = data.draw(st.integers(0, site.pd.instances - 1))
    pd = site.pd.divided(n_p, site.pd.instances - n_p)
    other = stages(site.remotes, pd, demand, threshold, expectation=expectation)
    assert other.lambda_max <= found.lambda_max * NEARLY


@settings(SOME, max_examples=15)
@given(sites, demands, st.integers(0, 60_000), st.data())
def test_the_scheduler_keeps_floors_and_cool_down_and_comes_to_rest(
    site: Site, demand: Demand, threshold: int, data: st.DataObject
) -> None:
    total = site.pd.instances + 1
    n_p = data.draw(st.integers(1, total - 1))
    held = ReplanSettings(
        min_gain=data.draw(st.sampled_from([0.0, 0.05, 0.3])),
        cooldown_s=60.0,
        max_moves_per_step=data.draw(st.integers(1, 3)),
        threshold_step_tokens=2000,
    )
    counts = tuple(remote.instances for remote in site.remotes)
    running = Running(threshold, counts, n_p, total - n_p, changed_at_s=0.0, version=1)
    queue = StageSeen(queue_s=data.draw(st.floats(0, 5)), utilisation=0.5)
    seen = Observation(0.0, 1e9, demand.lengths, demand.output_tokens, prefill=queue)
    converted_s = [0.0]
    last_change = 0
    for step in range(1, 31):
        seen = replace(seen, at_s=20.0 * step)
        revision = replan(running, seen, site, Slo(demand.tpot_s), held)
        if revision is None:
            continue
        last_change = step
        after = revision.applied_to(running, at_s=seen.at_s)
        assert after.version == running.version + 1
        assert min(after.n_p, after.n_d) >= 1
        assert after.n_p + after.n_d == total
        moved = abs(after.n_p - running.n_p)
        assert moved <= held.max_moves_per_step
        assert revision.lambda_after * NEARLY >= revision.lambda_before
        assert moved or revision.lambda_after > revision.lambda_before
        if moved:
            assert seen.at_s - converted_s[-1] >= held.cooldown_s
            converted_s.append(seen.at_s)
        running = after
    # One move each cool-down, which is three steps, at most.
    assert last_change <= 3 * total
