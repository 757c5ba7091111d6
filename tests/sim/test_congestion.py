"""The paper's policy on links of any rate: it settles, and what it cannot send comes home."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from prfaas.planning.paper import paper_case
from prfaas.sim.generate import ConstantOutput, generate
from prfaas.sim.policies.contender import DeploymentSettings, make_contender
from prfaas.sim.policies.dual import DualTimescalePolicy
from prfaas.sim.record import Columns, Outcome
from prfaas.sim.scenario import Fault, FaultKind, Workload
from prfaas.sim.world import World
from prfaas.workload.arrivals import Poisson

CASE = paper_case()
CONTENDER = make_contender("prfaas", CASE, DeploymentSettings())
#: Of the link that was planned for; the demand needs about a tenth of it.
RATES = (0.02, 0.05, 0.08, 0.09, 0.10, 0.11, 0.12, 0.2, 1.0)
LOW, HIGH = 2.0, 6.0


@dataclass
class Watched:
    """A run's columns and what the link's rule was, once per period."""

    columns: Columns
    factors: list[float] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)

    def swings(self) -> int:
        """Return how often the threshold went all the way up, or all the way down."""
        ends = [factor > HIGH for factor in self.factors if not LOW < factor < HIGH]
        return sum(before != after for before, after in pairwise(ends))


def requests(load: float, count: int = 2500) -> Workload:
    rate = CONTENDER.lambda_max * load
    output = ConstantOutput(CASE.demand.output_tokens)
    return generate(CASE.demand.lengths, Poisson(rate), output, count=count, seed=3)


def run(workload: Workload, *faults: Fault, **limits: float) -> Watched:
    policy = CONTENDER.make_policy()
    assert isinstance(policy, DualTimescalePolicy)
    watched = Watched(None)  # type: ignore[arg-type]
    start, act = policy.start, policy.act

    def start_limited(world: World) -> None:
        start(world)
        policy._snapshot = policy.snapshot._replace(**limits)

    def act_watched(now_s: float) -> None:
        act(now_s)
        link = policy.snapshot.remotes[0].link
        watched.factors.append(link.threshold_factor)
        watched.closed.append(link.closed)
        watched.at_s.append(now_s)

    policy.start, policy.act = start_limited, act_watched  # type: ignore[method-assign]
    world = World(CONTENDER.deployment, workload, policy, faults=faults)
    watched.columns = world.run(until_s=float(workload.arrival_s[-1]))
    return watched


def link_rate(factor: float, at_s: float = 1.0, until_s: float = float("inf")) -> Fault:
    return Fault(at_s, until_s, FaultKind.LINK_RATE, "prfaas", factor)


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_the_threshold_does_not_swing_on_a_link_of_any_rate(load: float) -> None:
    """In ten minutes and more it goes up and perhaps down again, and not up and down for ever."""
    workload = requests(load)
    assert workload.arrival_s[-1] > 600
    for rate in RATES:
        watched = run(workload, link_rate(rate))
        assert watched.swings() <= 2, rate
        assert not any(watched.closed), rate


def test_a_full_link_is_used_while_its_shortest_offloads_come_home() -> None:
    workload = requests(0.7)
    narrow, wide = run(workload, link_rate(0.1)), run(workload)
    assert max(wide.factors) == 1.0
    assert np.mean(narrow.factors) > 2
    remote = [watched.columns.region > 0 for watched in (narrow, wide)]
    assert 0.5 < remote[0].sum() / remote[1].sum() < 0.98
    prompts = workload.prompt_tokens
    assert prompts[remote[0]].mean() > prompts[remote[1]].mean()


def test_an_outage_is_followed_within_a_period_and_a_slow_return() -> None:
    watched = run(requests(0.5), link_rate(0.0, 100.0, 160.0))
    closed_s = [at_s for at_s, closed in zip(watched.at_s, watched.closed, strict=True) if closed]
    assert 100.0 <= closed_s[0] <= 100.5
    assert 159.0 <= closed_s[-1] <= 160.5
    columns = watched.columns
    in_outage = (columns.arrival_s > 100.5) & (columns.arrival_s < 160)
    assert (columns.region[in_outage] == 0).all()
    factors = [f for f, at_s in zip(watched.factors, watched.at_s, strict=True) if at_s > 160.5]
    assert factors[0] > 6
    assert factors[:20] == sorted(factors[:20], reverse=True)
    assert factors[-1] == 1.0
    assert (columns.region[columns.arrival_s > 200] > 0).any()


def test_the_budget_bounds_what_waits_for_the_local_nodes_in_a_long_outage() -> None:
    workload, dead = requests(0.9), link_rate(0.0)
    free = run(workload, dead).columns
    held = run(workload, dead, absorb_tokens=131072).columns
    begun = [~np.isnan(columns.first_token_s) for columns in (free, held)]
    worst_s = [np.nanquantile(c.ttft_s[b], 0.9) for c, b in zip((free, held), begun, strict=True)]
    assert worst_s[1] < 0.25 * worst_s[0]
    refused = held.outcome == Outcome.REFUSED
    assert 0.05 < refused.mean() < 0.6
    assert workload.prompt_tokens[refused].min() > CONTENDER.make_policy().threshold_tokens  # type: ignore[attr-defined]
