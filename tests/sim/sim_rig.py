"""Small simulated deployments, a policy that never rests, and what must hold of any run."""

import random
from itertools import pairwise

import numpy as np

from prfaas.profile import (
    Curve,
    DecodeProfile,
    InstanceProfile,
    Origin,
    PolynomialCurve,
    constant,
)
from prfaas.records import Role
from prfaas.routing import Bandwidth, Decision, LinkRule, Refusal
from prfaas.sim.policies.routed import ThresholdPolicy
from prfaas.sim.record import Columns, Outcome
from prfaas.sim.request import SimRequest
from prfaas.sim.scenario import Deployment, Workload
from prfaas.sim.world import World
from prfaas.throughput import PdCluster, PrefillCluster
from prfaas.workload.chain import Chain

NEVER = float("inf")
EVERYTHING_LOCAL = 1 << 40


def linear(slope: float, constant_term: float = 0.0) -> Curve:
    return PolynomialCurve((constant_term, slope))


def profile(
    *,
    prefill_s: Curve | None = None,
    kv_bytes: Curve | None = None,
    step_s: Curve | None = None,
    max_batch: int = 8,
) -> InstanceProfile:
    """1 ms per prompt token, 1000 bytes per token, 10 ms per decode step, unless told."""
    return InstanceProfile(
        name="test",
        model="test",
        hardware="test",
        gpus=1,
        prefill_s=prefill_s or linear(1e-3),
        kv_bytes=kv_bytes or linear(1000.0),
        decode=DecodeProfile(step_s or constant(0.01), max_batch),
        origin=Origin.ESTIMATED,
        source="a test",
    )


def deployment(
    *,
    prefill: int = 1,
    decode: int = 1,
    remote: int = 0,
    link_bytes_per_s: float = 1e9,
    local_profile: InstanceProfile | None = None,
    remote_profile: InstanceProfile | None = None,
    **more: object,
) -> Deployment:
    """One PD cluster `pd` and, with `remote` instances, one PrfaaS cluster `far`."""
    local = local_profile or profile()
    far = PrefillCluster("far", remote_profile or local, remote, link_bytes_per_s)
    return Deployment(
        pd=PdCluster("pd", local, prefill, decode),
        remotes=(far,) if remote else (),
        **{"tpot_s": 1.0, "rtt_s": 0.0, "layers": 1, **more},  # type: ignore[arg-type]
    )


def workload(
    arrival_s: object, prompt_tokens: object, output_tokens: object, chains: tuple[Chain, ...] = ()
) -> Workload:
    arrivals = np.asarray(arrival_s, dtype=np.float64)
    prompts = np.broadcast_to(np.asarray(prompt_tokens, dtype=np.int64), arrivals.shape)
    outputs = np.broadcast_to(np.asarray(output_tokens, dtype=np.int64), arrivals.shape)
    return Workload(arrivals, prompts, outputs, chains)


class RestlessPolicy(ThresholdPolicy):
    """Changes threshold, links' rules and roles at random, as often as it may."""

    period_s = 0.7

    def __init__(self, seed: int, *, converts: bool) -> None:
        super().__init__(500)
        self._random = random.Random(seed)
        self._converts = converts

    def start(self, world: World) -> None:
        super().start(world)
        self._world = world

    def act(self, now_s: float) -> None:
        world, rng = self._world, self._random
        self.set_threshold(rng.choice([0, 200, 500, 1000, EVERYTHING_LOCAL]))
        self.set_links({name: self._rule() for name in world.remotes})
        if self._converts and rng.random() < 0.5:
            role = rng.choice([Role.PREFILL, Role.DECODE])
            pool = world.decodes if role is Role.PREFILL else world.pd.pool
            if len(pool) > 1:
                world.convert(rng.choice(pool.servers()).record.name, role)

    def _rule(self) -> LinkRule:
        return LinkRule(self._random.choice(list(Bandwidth)), 1.0, self._random.random() < 0.2)


class StalePolicy(ThresholdPolicy):
    """Decides each first attempt for the same two nodes, there or not."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(EVERYTHING_LOCAL)
        self._decision = decision

    def place(self, request: SimRequest, now_s: float) -> Decision | Refusal:
        return self._decision


def check_run(world: World, columns: Columns) -> None:
    """Check what must hold at the end of any run that was not cut short."""
    check_ends(columns)
    check_order(columns)
    check_counts(world)


def check_ends(columns: Columns) -> None:
    ends = {Outcome.ANSWERED, Outcome.REFUSED}
    assert set(columns.outcome.tolist()) <= ends, np.flatnonzero(columns.outcome == Outcome.OPEN)


def check_order(columns: Columns) -> None:
    answered = columns.answered
    points = [
        columns.arrival_s,
        columns.prefill_start_s,
        columns.prefill_end_s,
        columns.kv_arrival_s,
        columns.first_token_s,
        columns.finish_s,
    ]
    for number, (before, after) in enumerate(pairwise(points)):
        wrong = answered & ~(after >= before - 1e-9)
        assert not wrong.any(), (number, np.flatnonzero(wrong), before[wrong], after[wrong])


def check_counts(world: World) -> None:
    """Nothing is left anywhere: every reservation was given back, every byte sent."""
    assert world.ended == world.arrived == len(world.workload.arrival_s)
    for name, server in {**world.prefill_servers, **world.decode_servers}.items():
        assert (server.in_flight, server.backlog_tokens) == (0, 0), name
    for region in world.remotes.values():
        assert region.offloads == {}
        for link in (region.egress, region.ingress):
            assert link is not None
            assert link.flows == 0
            assert link.reading()[1] <= 1e-6 * max(link.reading()[0], 1.0)
