import math
from dataclasses import replace

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.planning import Constraints, PdPool, Site, TtftGoal, baselines, plan, threshold_grid
from prfaas.planning.curves import kv_throughput_curve, role_curve, threshold_curve
from prfaas.planning.paper import paper_case
from prfaas.throughput import Expectation, PrefillCluster, stages
from prfaas.throughput.ttft import arrival_of
from prfaas.workload import EmpiricalLengths

CASE = paper_case()
SITE, DEMAND = CASE.site, CASE.demand
H200, H20 = SITE.remotes[0].profile, SITE.pd.profile
COARSE = Constraints(threshold_step_tokens=2000)


@pytest.mark.parametrize("expectation", Expectation)
@pytest.mark.parametrize("gbps", [1, 5, 12, 100])
def test_the_search_finds_what_trying_everything_finds(
    gbps: float, expectation: Expectation
) -> None:
    site = replace(SITE, remotes=(replace(SITE.remotes[0], egress_bytes_per_s=gbps * 1e9 / 8),))
    found = plan(site, DEMAND, COARSE, expectation=expectation)
    tried = [
        stages(site.remotes, site.pd.divided(n, 8 - n), DEMAND, t, expectation=expectation)
        for t in range(0, 134_000, 2000)
        for n in range(8)
    ]
    best = max(tried, key=lambda at: at.lambda_max)
    assert found.lambda_max == pytest.approx(best.lambda_max, rel=1e-9)
    assert found.lambda_max == found.stages.lambda_max


def test_the_grid_reaches_from_all_to_none_offloaded() -> None:
    seen = EmpiricalLengths([0, 7, 1234])
    grid = threshold_grid(seen, Constraints())
    assert grid[:2].tolist() == [0, 100]
    assert float(seen.above(grid[-1])) == 0
    assert float(DEMAND.lengths.above(threshold_grid(DEMAND.lengths, Constraints())[-1])) == 0


def test_two_prfaas_clusters_add_up_to_one() -> None:
    halves = tuple(
        PrefillCluster(name, H200, 2, SITE.remotes[0].egress_bytes_per_s / 2) for name in "ab"
    )
    found = plan(replace(SITE, remotes=halves), DEMAND)
    whole = plan(SITE, DEMAND)
    assert found.lambda_max == pytest.approx(whole.lambda_max)
    assert (found.threshold_tokens, found.n_prfaas) == (whole.threshold_tokens, (2, 2))
    assert [cluster.share for cluster in found.stages.clusters] == pytest.approx([0.5, 0.5])


def test_a_second_cluster_on_a_thin_link_brings_what_its_link_takes() -> None:
    thin = PrefillCluster("thin", H200, 4, 2e9 / 8)
    found = plan(replace(SITE, remotes=(*SITE.remotes, thin)), DEMAND)
    assert found.lambda_max > plan(SITE, DEMAND).lambda_max
    assert found.stages.clusters[1].link_bound
    assert found.stages.clusters[1].egress_bytes_per_s <= 2e9 / 8 * (1 + 1e-9)


def test_among_equals_the_plan_with_most_room_for_prefill_is_taken() -> None:
    few_decodes = replace(SITE, pd=PdPool("pd", H20, 8))
    found = plan(few_decodes, DEMAND, Constraints(n_p=3, n_d=1))
    assert found.lambda_max == pytest.approx(found.stages.theta_pd_d)
    assert found.threshold_tokens == plan(SITE, DEMAND).threshold_tokens


def test_a_lone_site_offloads_nothing() -> None:
    found = plan(Site((), PdPool("pd", H20, 12)), DEMAND)
    assert found.stages.offload_fraction == 0
    assert (found.n_prfaas, found.n_p, found.n_d) == ((), 9, 3)
    assert baselines(Site((), PdPool("pd", H20, 12)), DEMAND).naive is None


def test_an_empirical_distribution_is_planned_like_the_one_it_was_drawn_from() -> None:
    drawn = EmpiricalLengths(DEMAND.lengths.sample(np.random.default_rng(3), 200_000))
    found = plan(SITE, replace(DEMAND, lengths=drawn))
    whole = plan(SITE, DEMAND)
    assert found.lambda_max == pytest.approx(whole.lambda_max, rel=0.01)
    assert found.threshold_tokens == pytest.approx(whole.threshold_tokens, rel=0.02)


def test_fixed_values_are_kept_and_the_rest_is_searched() -> None:
    at = plan(SITE, DEMAND, Constraints(threshold_tokens=30_000.0))
    assert at.threshold_tokens == 30_000
    assert at.lambda_max < plan(SITE, DEMAND).lambda_max
    assert plan(SITE, DEMAND, Constraints(n_p=2)).n_d == 6
    assert plan(SITE, DEMAND, Constraints(n_d=6)).n_p == 2
    idle = plan(SITE, DEMAND, Constraints(n_p=3, n_d=4))
    assert (idle.n_p, idle.n_d) == (3, 4)


def test_floors_are_kept() -> None:
    assert plan(SITE, DEMAND, Constraints(min_prefill=5)).n_p == 5
    assert plan(SITE, DEMAND, Constraints(min_decode=7)).n_d == 7


def test_the_link_share_is_kept() -> None:
    found = plan(SITE, DEMAND, Constraints(link_share=0.05))
    assert found.stages.egress_bytes_per_s <= 0.05 * SITE.remotes[0].egress_bytes_per_s * (1 + 1e-9)
    assert found.lambda_max < plan(SITE, DEMAND).lambda_max


def test_a_mean_ttft_is_kept_at_the_price_of_throughput() -> None:
    free = plan(SITE, DEMAND)
    goal = TtftGoal(free.ttft.arrival_mean_s - 0.1)
    found = plan(SITE, DEMAND, Constraints(ttft=goal))
    assert found.ttft.arrival_mean_s <= goal.seconds
    assert found.lambda_max < free.lambda_max


def test_a_ttft_quantile_is_kept() -> None:
    slower = replace(SITE, remotes=(replace(SITE.remotes[0], egress_bytes_per_s=15e9 / 8),))
    goal = TtftGoal(2.9, quantile=0.8)
    found = plan(slower, DEMAND, Constraints(ttft=goal))
    arrival = arrival_of(slower.remotes, H20, transfer=True)
    at = arrival.quantile_s(DEMAND.lengths, found.threshold_tokens, 0.8)
    assert at <= goal.seconds
    free = plan(slower, DEMAND)
    assert arrival.quantile_s(DEMAND.lengths, free.threshold_tokens, 0.8) > goal.seconds
    assert found.lambda_max < free.lambda_max


def test_a_limit_of_cost_leaves_instances_out() -> None:
    found = plan(SITE, DEMAND, Constraints(max_cost_per_hour=12.0))
    assert found.cost_per_hour is not None
    assert found.cost_per_hour <= 12
    assert sum(found.n_prfaas) * 2 + found.n_p + found.n_d == found.cost_per_hour
    tried = [
        plan(SITE.resized([k], n), DEMAND).lambda_max
        for k in range(5)
        for n in range(1, 9)
        if 2 * k + n <= 12
    ]
    assert found.lambda_max == pytest.approx(max(tried))
    unlimited = plan(SITE, DEMAND, Constraints(max_cost_per_hour=1000.0))
    assert unlimited.lambda_max == plan(SITE, DEMAND).lambda_max


def test_of_equal_plans_the_cheapest_is_taken() -> None:
    decode_bound = Constraints(max_cost_per_hour=100.0, n_d=1)
    found = plan(SITE, DEMAND, decode_bound)
    assert found.lambda_max == pytest.approx(found.stages.theta_pd_d)
    assert sum(found.n_prfaas) + found.n_p < 4


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (Constraints(ttft=TtftGoal(0.1)), "ttft_s = 0.1"),
        (Constraints(max_cost_per_hour=0.5), "max_cost_per_hour = 0.5"),
        (Constraints(max_cost_per_hour=0.5), "allowed: 2 or more"),
        (Constraints(max_cost_per_hour=1.0, n_p=2, n_d=0, min_decode=0), "too low for any choice"),
        (Constraints(ttft=TtftGoal(3.0), threshold_tokens=1e6), "threshold_tokens = 1000000: miss"),
        (Constraints(min_prefill=5, min_decode=4), "min_prefill"),
        (Constraints(n_p=9), "n_p"),
        (Constraints(n_p=5, n_d=5), "n_p"),
    ],
)
def test_what_cannot_be_kept_is_named(constraints: Constraints, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(SITE, DEMAND, constraints)


def test_a_limit_of_cost_needs_prices() -> None:
    with pytest.raises(ConfigError, match="prices"):
        plan(replace(SITE, prices={}), DEMAND, Constraints(max_cost_per_hour=5))


def test_more_choices_than_can_be_tried_are_refused() -> None:
    remotes = tuple(PrefillCluster(name, H200, 99, 1e9) for name in "abc")
    with pytest.raises(ConfigError, match="choices"):
        plan(replace(SITE, remotes=remotes), DEMAND, Constraints(max_cost_per_hour=50))
    with pytest.raises(ConfigError, match="threshold_step_tokens"):
        plan(SITE, DEMAND, Constraints(threshold_step_tokens=1))


def test_sites_and_constraints_refuse_what_cannot_be() -> None:
    bad = [
        lambda: PdPool("pd", H20, 0),
        lambda: PdPool("pd", H200, 8),
        lambda: replace(SITE, remotes=(*SITE.remotes, *SITE.remotes)),
        lambda: replace(SITE, prices={"h": math.nan}),
        lambda: TtftGoal(0),
        lambda: TtftGoal(1, quantile=1),
        lambda: Constraints(link_share=0),
        lambda: Constraints(min_decode=-1),
        lambda: Constraints(threshold_tokens=-1),
        lambda: Constraints(max_cost_per_hour=math.nan),
        lambda: Constraints(threshold_step_tokens=0),
    ]
    for make in bad:
        with pytest.raises(ConfigError):
            make()


def test_curves_pass_through_the_plan() -> None:
    found = plan(SITE, DEMAND)
    roles = role_curve(SITE, DEMAND, found.threshold_tokens, Expectation.MEAN_LENGTH)
    assert int(roles.n_p[np.argmax(roles.lambda_max)]) == found.n_p == 3
    assert roles.lambda_max[3] == pytest.approx(found.lambda_max)
    expectation = Expectation.MEAN_LENGTH
    curve = threshold_curve(SITE, DEMAND, (3, 5), expectation, Constraints())
    at = int(np.argmax(curve.lambda_max))
    assert curve.thresholds[at] == found.threshold_tokens
    assert curve.offload_limit[at] == pytest.approx(found.stages.offload_limit)
    assert curve.local_limit[at] == pytest.approx(found.stages.local_limit)
    coarse = threshold_curve(SITE, DEMAND, (3, 5), expectation, COARSE)
    assert set(np.diff(coarse.thresholds)) == {2000.0}
    phi = kv_throughput_curve(H200, [32 * 1024]) * 8 / 1e9
    assert phi.tolist() == pytest.approx([3.19], rel=0.005)
