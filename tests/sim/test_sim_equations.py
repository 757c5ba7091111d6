"""Where the equations' assumptions hold, the simulator agrees with them.

A saturated deployment takes its requests in Lambda_max; just below no queue grows.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from prfaas.planning.paper import paper_case
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.record import Columns
from prfaas.sim.scenario import Deployment, Workload
from prfaas.sim.world import World
from prfaas.throughput import Demand, Expectation, PdCluster, PrefillCluster, Stage, Stages, stages
from prfaas.workload.lengths import EmpiricalLengths

THRESHOLD = 19_400
TPOT_S, OUTPUT_TOKENS = 0.025, 1024


def site(
    *, prfaas: int = 4, prefill: int = 3, decode: int = 5, link_bytes_per_s: float = 12.5e9
) -> Deployment:
    """The paper's deployment, resized."""
    case = paper_case()
    remote = replace(case.site.remotes[0], instances=prfaas, egress_bytes_per_s=link_bytes_per_s)
    pd = PdCluster("pd", case.site.pd.profile, prefill, decode)
    return Deployment(pd=pd, remotes=(remote,), tpot_s=TPOT_S, layers=57, central_queue=True)


def planned(deployment: Deployment, prompts: NDArray[np.int64]) -> Stages:
    demand = Demand(EmpiricalLengths(prompts), OUTPUT_TOKENS, TPOT_S)
    remotes: tuple[PrefillCluster, ...] = deployment.remotes
    return stages(remotes, deployment.pd, demand, THRESHOLD, expectation=Expectation.EXACT)


def simulate(
    deployment: Deployment, prompts: NDArray[np.int64], rate_per_s: float
) -> tuple[World, Columns]:
    arrival_s = np.arange(1, len(prompts) + 1) / rate_per_s
    outputs = np.full(len(prompts), OUTPUT_TOKENS)
    world = World(deployment, Workload(arrival_s, prompts, outputs), ThresholdPolicy(THRESHOLD))
    return world, world.run()


def paper_prompts(count: int) -> NDArray[np.int64]:
    return paper_case().demand.lengths.sample(np.random.default_rng(11), count)


@pytest.mark.parametrize(
    ("bottleneck", "deployment"),
    [
        (None, site()),
        (Stage.PRFAAS_PREFILL, site(prfaas=2)),
        (Stage.LINK, site(link_bytes_per_s=0.7e9)),
        (Stage.PD_PREFILL, site(prefill=1)),
        (Stage.PD_DECODE, site(decode=2)),
    ],
    ids=["paper", "prfaas_prefill", "link", "pd_prefill", "pd_decode"],
)
def test_a_saturated_deployment_takes_lambda_max(
    bottleneck: Stage | None, deployment: Deployment
) -> None:
    prompts = paper_prompts(15_000)
    plan = planned(deployment, prompts)
    assert bottleneck in (None, plan.bottleneck)
    _, columns = simulate(deployment, prompts, 1.5 * plan.lambda_max)
    assert columns.answered.all()
    # The stage that is full works from the first request to the last: their number over the time.
    throughput = len(prompts) / columns.finish_s.max()
    assert throughput == pytest.approx(plan.lambda_max, rel=0.02)


def test_own_queues_by_least_backlog_take_almost_as_much() -> None:
    prompts = paper_prompts(15_000)
    deployment = replace(site(), central_queue=False)
    plan = planned(deployment, prompts)
    _, columns = simulate(deployment, prompts, 1.5 * plan.lambda_max)
    throughput = len(prompts) / columns.finish_s.max()
    assert throughput == pytest.approx(plan.lambda_max, rel=0.04)


@pytest.mark.parametrize(("load", "grows"), [(0.97, False), (1.1, True)])
@pytest.mark.parametrize(
    "deployment",
    [site(prfaas=2), site(link_bytes_per_s=0.7e9), site(prefill=1), site(decode=2)],
    ids=["prfaas_prefill", "link", "pd_prefill", "pd_decode"],
)
def test_queues_grow_above_lambda_max_only(
    deployment: Deployment, load: float, grows: bool
) -> None:
    prompts = np.tile([8_000, 40_000], 3_000)
    plan = planned(deployment, prompts)
    _, columns = simulate(deployment, prompts, load * plan.lambda_max)
    waited = [part.max() for part in np.split(columns.ttft_s, 4)]
    if grows:
        assert waited[3] > 1.5 * waited[1]
    else:
        assert waited[3] <= 1.05 * waited[1]


def test_utilisation_of_the_link_is_what_the_equations_say() -> None:
    prompts = paper_prompts(15_000)
    deployment = site()
    plan = planned(deployment, prompts)
    world, columns = simulate(deployment, prompts, 0.8 * plan.lambda_max)
    link = world.remotes["prfaas"].egress
    assert link is not None
    sent_per_s = link.reading()[0] / columns.arrival_s[-1]
    assert sent_per_s == pytest.approx(0.8 * plan.egress_bytes_per_s, rel=0.01)
