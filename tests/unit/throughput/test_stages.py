import math

import pytest

from prfaas.errors import ConfigError
from prfaas.profile import (
    DecodeProfile,
    InstanceProfile,
    Origin,
    PolynomialCurve,
    constant,
)
from prfaas.throughput import Demand, Expectation, PdCluster, PrefillCluster, Stage, stages
from prfaas.workload import EmpiricalLengths

#: Prefill takes 1 ms a token, KV is 1000 bytes a token; decode 10 requests of 10 ms steps.
SLOW = InstanceProfile(
    name="slow",
    model="m",
    hardware="h",
    gpus=1,
    prefill_s=PolynomialCurve((0.0, 1e-3)),
    kv_bytes=PolynomialCurve((0.0, 1000.0)),
    decode=DecodeProfile(constant(0.01), max_batch=10),
    origin=Origin.ESTIMATED,
    source="",
)
DEMAND = Demand(EmpiricalLengths([100, 300, 1000, 3000]), output_tokens=100, tpot_s=0.01)


def remote(instances: int = 4, egress: float = 1e9, name: str = "r") -> PrefillCluster:
    return PrefillCluster(name, SLOW, instances, egress)


def pd(prefill: int, decode: int) -> PdCluster:
    return PdCluster("pd", SLOW, prefill, decode)


def test_each_stage_by_hand() -> None:
    at = stages([remote()], pd(2, 3), DEMAND, 500)
    assert at.offload_fraction == 0.5
    assert (at.l_long_tokens, at.l_short_tokens) == (2000, 200)
    assert at.theta_prfaas == pytest.approx(4 / 2.0)
    assert at.theta_pd_p == pytest.approx(2 / 0.2)
    assert at.theta_pd_d == pytest.approx(3 * 10 / (0.01 * 100))
    assert at.lambda_max == pytest.approx(4.0)
    assert at.bottleneck is Stage.PRFAAS_PREFILL
    assert at.egress_bytes_per_s == pytest.approx(2.0 * 2000 * 1000)
    assert (at.offload_limit, at.local_limit) == pytest.approx((4.0, 20.0))
    used = at.utilisation
    assert used.prfaas_prefill == pytest.approx(1.0)
    assert used.link == pytest.approx(4e6 / 1e9)
    assert used.pd_prefill == pytest.approx(4 / 20)
    assert used.pd_decode == pytest.approx(4 / 30)


@pytest.mark.parametrize(
    ("egress", "prefill", "decode", "bottleneck"),
    [
        (1e9, 9, 9, Stage.PRFAAS_PREFILL),
        (1e6, 9, 9, Stage.LINK),
        (0.0, 9, 9, Stage.LINK),
        (1e9, 0, 9, Stage.PD_PREFILL),
        (1e9, 9, 0, Stage.PD_DECODE),
    ],
)
def test_the_bottleneck_is_the_stage_that_is_full(
    egress: float, prefill: int, decode: int, bottleneck: Stage
) -> None:
    at = stages([remote(egress=egress)], pd(prefill, decode), DEMAND, 500)
    assert at.bottleneck is bottleneck
    if at.lambda_max > 0:
        assert at.utilisation.of(bottleneck) == pytest.approx(1.0)


@pytest.mark.parametrize("expectation", Expectation)
@pytest.mark.parametrize("threshold", [3000, 1e9, math.inf])
def test_nothing_offloaded_is_the_local_cluster_alone(
    threshold: float, expectation: Expectation
) -> None:
    with_remote = stages([remote()], pd(2, 3), DEMAND, threshold, expectation=expectation)
    alone = stages([], pd(2, 3), DEMAND, threshold, expectation=expectation)
    assert with_remote.lambda_max == alone.lambda_max == pytest.approx(2 / 1.1)
    assert with_remote.offload_fraction == with_remote.theta_prfaas == 0
    assert with_remote.egress_bytes_per_s == 0
    assert with_remote.utilisation == alone.utilisation
    assert math.isinf(with_remote.offload_limit)


@pytest.mark.parametrize("expectation", Expectation)
@pytest.mark.parametrize("prefill", [0, 2])
def test_all_offloaded_needs_no_local_prefill(prefill: int, expectation: Expectation) -> None:
    at = stages([remote()], pd(prefill, 3), DEMAND, 0, expectation=expectation)
    assert at.offload_fraction == 1
    assert at.lambda_max == pytest.approx(4 / 1.1)
    assert at.theta_pd_p == 0
    assert at.utilisation.pd_prefill == 0


def test_without_remote_clusters_only_what_is_local_gets_through() -> None:
    assert stages([], pd(2, 3), DEMAND, 500).lambda_max == 0
    assert stages([], pd(0, 3), DEMAND, math.inf).lambda_max == 0


def test_offloaded_requests_are_shared_by_what_each_cluster_can_take() -> None:
    clusters = [remote(4, name="fast"), remote(4, egress=1e6, name="thin"), remote(0, name="none")]
    at = stages(clusters, pd(9, 9), DEMAND, 500)
    assert at.theta_prfaas == pytest.approx(2.0 + 0.5)
    fast, thin, none = at.clusters
    assert (fast.share, thin.share, none.share) == pytest.approx((0.8, 0.2, 0.0))
    assert (fast.link_bound, thin.link_bound) == (False, True)
    assert fast.prefill_utilisation == pytest.approx(1.0)
    assert thin.link_utilisation == pytest.approx(1.0)
    assert thin.prefill_utilisation == pytest.approx(0.25)
    assert at.egress_bytes_per_s == pytest.approx(2.5 * 2e6)


def test_the_link_share_bounds_what_may_be_used() -> None:
    half = PrefillCluster("r", SLOW, 4, 2e6, link_share=0.5)
    at = stages([half], pd(9, 9), DEMAND, 500)
    assert at.theta_prfaas == pytest.approx(0.5)
    assert at.utilisation.link == pytest.approx(1.0)


def test_the_exact_mean_is_of_the_times_not_the_time_of_the_mean() -> None:
    square = PolynomialCurve((0.0, 0.0, 1e-6))
    bent = InstanceProfile("b", "m", "h", 1, square, square, None, Origin.ESTIMATED, "")
    cluster = PrefillCluster("r", bent, 4, 1e9)
    mean = stages([cluster], pd(9, 9), DEMAND, 500)
    exact = stages([cluster], pd(9, 9), DEMAND, 500, expectation=Expectation.EXACT)
    assert mean.theta_prfaas == pytest.approx(4 / 2.0**2)
    assert exact.theta_prfaas == pytest.approx(4 / ((1.0**2 + 3.0**2) / 2))


def test_an_slo_below_the_step_of_one_request_lets_nothing_through() -> None:
    hasty = Demand(DEMAND.lengths, output_tokens=100, tpot_s=0.009)
    at = stages([remote()], pd(2, 3), hasty, 500)
    assert (at.theta_pd_d, at.lambda_max, at.bottleneck) == (0, 0, Stage.PD_DECODE)


@pytest.mark.parametrize("threshold", [-1.0, math.nan])
def test_a_threshold_that_is_none_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        stages([remote()], pd(2, 3), DEMAND, threshold)


def test_clusters_and_demand_refuse_what_cannot_be() -> None:
    bad = [
        lambda: remote(-1),
        lambda: remote(egress=math.nan),
        lambda: remote(egress=-1),
        lambda: PrefillCluster("r", SLOW, 1, 1e9, link_share=0),
        lambda: PrefillCluster("r", SLOW, 1, 1e9, link_share=1.1),
        lambda: pd(-1, 1),
        lambda: pd(1, -1),
        lambda: Demand(DEMAND.lengths, output_tokens=0, tpot_s=0.01),
        lambda: Demand(DEMAND.lengths, output_tokens=1, tpot_s=math.nan),
    ]
    for make in bad:
        with pytest.raises(ConfigError, match="allowed"):
            make()
