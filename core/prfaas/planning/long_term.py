"""The leader's long-term step: from nodes and demand to the next version of the plan. Pure.

Source: PrfaaS §3.4.3, long term.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from prfaas.plan_record import PlanRecord, RoleCounts
from prfaas.planning.case import Case
from prfaas.planning.demand_book import DemandSeen
from prfaas.planning.replan import (
    Observation,
    ReplanSettings,
    Revision,
    Running,
    Slo,
    StageSeen,
    replan,
)
from prfaas.records import NodeRecord, Role
from prfaas.routing import NodeState


@dataclass(frozen=True, slots=True)
class StagesSeen:
    """How full each stage is."""

    prfaas: StageSeen
    prefill: StageSeen
    decode: StageSeen

    @property
    def bottleneck(self) -> str:
        """The stage with the longest queue, or else the busiest: prfaas, prefill or decode."""
        stages = {"prfaas": self.prfaas, "prefill": self.prefill, "decode": self.decode}
        return max(stages, key=lambda name: (stages[name].queue_s, stages[name].utilisation))


def stages_seen(
    states: Iterable[NodeState],
    *,
    region: str,
    tokens_per_s: Mapping[str, float],
    decode_slots: int,
    answer_s: float,
) -> StagesSeen:
    """Return how full the stages of `region` and of the prefills elsewhere are.

    `decode_slots` is how many requests a decode node takes at once where it does not say so itself,
    `answer_s` how long an answer takes.
    """
    by_stage: dict[str, list[NodeState]] = {"prfaas": [], "prefill": [], "decode": []}
    for state in states:
        record = state.record
        if record.role is Role.PREFILL:
            by_stage["prefill" if record.region == region else "prfaas"].append(state)
        elif record.role is Role.DECODE and record.region == region:
            by_stage["decode"].append(state)
    return StagesSeen(
        _prefill_seen(by_stage["prfaas"], tokens_per_s),
        _prefill_seen(by_stage["prefill"], tokens_per_s),
        _decode_seen(by_stage["decode"], decode_slots, answer_s),
    )


def _prefill_seen(states: list[NodeState], tokens_per_s: Mapping[str, float]) -> StageSeen:
    if not states:
        return StageSeen()
    queue_s = sum(
        state.backlog_tokens / pace
        for state in states
        if (pace := tokens_per_s.get(state.record.region))
    )
    busy = sum(state.in_flight > 0 for state in states)
    return StageSeen(queue_s / len(states), busy / len(states))


def _decode_seen(states: list[NodeState], decode_slots: int, answer_s: float) -> StageSeen:
    slots = sum(state.record.max_running_requests or decode_slots for state in states)
    if not slots:
        return StageSeen()
    in_flight = sum(state.in_flight for state in states)
    return StageSeen(max(in_flight - slots, 0) * answer_s / slots, min(in_flight / slots, 1.0))


def running_now(
    plan: PlanRecord | None,
    nodes: Iterable[NodeRecord],
    case: Case,
    *,
    region: str,
    threshold_tokens: int,
) -> Running | None:
    """Return what runs: the roles that the nodes have. None where nothing could be planned.

    Draining nodes are on their way out of their role.
    """
    kept = [node for node in nodes if not node.draining]

    def count(role: Role, where: str) -> int:
        return sum(node.role is role and node.region == where for node in kept)

    n_p, n_d = count(Role.PREFILL, region), count(Role.DECODE, region)
    if not n_d or n_p + n_d < 1:
        return None
    return Running(
        threshold_tokens=threshold_tokens,
        n_prfaas=tuple(count(Role.PREFILL, remote.name) for remote in case.site.remotes),
        n_p=n_p,
        n_d=n_d,
        changed_at_s=plan.converted_at_s if plan else 0.0,
        version=plan.version if plan else 0,
    )


def next_revision(
    running: Running,
    demand: DemandSeen,
    seen: StagesSeen,
    case: Case,
    *,
    at_s: float,
    settings: ReplanSettings | None = None,
) -> Revision | None:
    """Return what to change; `demand` is that of all gateways together."""
    observation = Observation(
        at_s=at_s,
        arrival_rate_per_s=demand.rate_per_s,
        lengths=demand.lengths,
        output_tokens=demand.output_tokens,
        prfaas=seen.prfaas,
        prefill=seen.prefill,
        decode=seen.decode,
    )
    slo = Slo(case.demand.tpot_s, case.constraints.ttft)
    settings = settings or ReplanSettings(
        min_prefill=max(case.constraints.min_prefill, 1),
        min_decode=max(case.constraints.min_decode, 1),
        threshold_step_tokens=case.constraints.threshold_step_tokens,
    )
    return replan(running, observation, case.site, slo, settings)


def plan_after(
    revision: Revision,
    running: Running,
    plan: PlanRecord | None,
    *,
    region: str,
    by: str,
    at_s: float,
) -> PlanRecord:
    """Return the plan that carries a revision out."""
    before = plan or PlanRecord(0, running.threshold_tokens)
    converts = (revision.n_p, revision.n_d) != (running.n_p, running.n_d)
    return replace(
        before,
        threshold_tokens=revision.threshold_tokens,
        roles={**before.roles, region: RoleCounts(revision.n_p, revision.n_d)},
        by=by,
        why=str(revision.reason),
        at_s=at_s,
        converted_at_s=at_s if converts else before.converted_at_s,
        pinned=False,
        lambda_before=revision.lambda_before,
        lambda_after=revision.lambda_after,
    )
