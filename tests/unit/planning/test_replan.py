from dataclasses import replace

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.planning import Constraints, TtftGoal, plan
from prfaas.planning.paper import paper_case
from prfaas.planning.replan import (
    Observation,
    ReplanSettings,
    Revision,
    RevisionReason,
    Running,
    Slo,
    StageSeen,
    replan,
)
from prfaas.throughput import Expectation
from prfaas.workload import TruncatedLogNormal
from prfaas.workload.sketch import HistogramLengths, LengthSketch

CASE = paper_case()
SITE, DEMAND = CASE.site, CASE.demand
SLO = Slo(DEMAND.tpot_s)
BEST = plan(SITE, DEMAND, expectation=Expectation.EXACT)
OPTIMUM = Running(BEST.threshold_tokens, (4,), 3, 5, changed_at_s=0.0, version=7)
SEEN = Observation(1000.0, 3.0, DEMAND.lengths, DEMAND.output_tokens)


def test_at_the_optimum_nothing_changes() -> None:
    assert replan(OPTIMUM, SEEN, SITE, SLO) is None


def test_a_wrong_threshold_is_put_right_also_within_the_cool_down() -> None:
    running = replace(OPTIMUM, threshold_tokens=60_000, changed_at_s=999.0)
    revision = replan(running, SEEN, SITE, SLO)
    assert revision is not None
    assert revision.reason is RevisionReason.THRESHOLD
    assert (revision.threshold_tokens, revision.version) == (BEST.threshold_tokens, 8)
    assert (revision.n_p, revision.n_d) == (3, 5)
    assert revision.lambda_after > revision.lambda_before * 1.05
    after = revision.applied_to(running, at_s=1001.0)
    assert after.changed_at_s == 999.0
    assert replan(after, SEEN, SITE, SLO) is None


def test_a_small_gain_changes_nothing() -> None:
    running = replace(OPTIMUM, threshold_tokens=BEST.threshold_tokens + 300)
    assert replan(running, SEEN, SITE, SLO) is None
    assert replan(running, SEEN, SITE, SLO, ReplanSettings(min_gain=0.001)) is not None


@pytest.mark.parametrize(
    ("roles", "reason", "after"),
    [
        ((1, 7), RevisionReason.MORE_PREFILL, (2, 6)),
        ((6, 2), RevisionReason.MORE_DECODE, (5, 3)),
    ],
)
def test_roles_go_one_step_towards_the_best(
    roles: tuple[int, int], reason: RevisionReason, after: tuple[int, int]
) -> None:
    running = replace(OPTIMUM, n_p=roles[0], n_d=roles[1])
    revision = replan(running, SEEN, SITE, SLO)
    assert revision is not None
    assert (revision.reason, (revision.n_p, revision.n_d)) == (reason, after)
    applied = revision.applied_to(running, at_s=1005.0)
    assert (applied.changed_at_s, applied.version) == (1005.0, 8)


def test_several_steps_at_once_where_that_is_allowed() -> None:
    running = replace(OPTIMUM, n_p=6, n_d=2)
    revision = replan(running, SEEN, SITE, SLO, ReplanSettings(max_moves_per_step=3))
    assert revision is not None
    assert (revision.n_p, revision.n_d) == (3, 5)


def test_a_step_that_brings_nothing_yet_is_taken_on_the_way_to_one_that_does() -> None:
    """With prompts of one length local prefill helps only once it beats the PrfaaS cluster."""
    alike = replace(SEEN, lengths=HistogramLengths(np.array([2000.0]), np.array([1.0])))
    thin = replace(SITE, remotes=(replace(SITE.remotes[0], egress_bytes_per_s=0.7e9),))
    running = replace(OPTIMUM, n_p=1, n_d=7, threshold_tokens=0)
    revision = replan(running, alike, thin, Slo(DEMAND.tpot_s))
    assert revision is not None
    assert (revision.n_p, revision.reason) == (2, RevisionReason.MORE_PREFILL)
    assert revision.lambda_after == pytest.approx(revision.lambda_before)


def test_roles_wait_for_the_cool_down() -> None:
    running = replace(OPTIMUM, n_p=6, n_d=2, changed_at_s=800.0)
    revision = replan(running, SEEN, SITE, SLO)
    assert revision is None or (revision.n_p, revision.n_d) == (6, 2)
    revision = replan(running, replace(SEEN, at_s=1100.0), SITE, SLO)
    assert revision is not None
    assert revision.n_p == 5


def test_roles_stay_while_there_is_little_load() -> None:
    running = replace(OPTIMUM, n_p=6, n_d=2)
    idle = replace(SEEN, arrival_rate_per_s=0.1)
    retuned = replan(running, idle, SITE, SLO)
    assert retuned is None or retuned.reason is RevisionReason.THRESHOLD
    queued = replace(idle, decode=StageSeen(queue_s=5.0, utilisation=1.0))
    revision = replan(running, queued, SITE, SLO)
    assert revision is not None
    assert revision.reason is RevisionReason.MORE_DECODE


def test_what_is_seen_overrules_the_model() -> None:
    running = replace(OPTIMUM, n_p=6, n_d=2)
    prefill_is_full = replace(
        SEEN,
        prefill=StageSeen(queue_s=30.0, utilisation=1.0),
        decode=StageSeen(queue_s=0.0, utilisation=0.4),
    )
    revision = replan(running, prefill_is_full, SITE, SLO)
    assert revision is None or revision.reason is RevisionReason.THRESHOLD


def test_floors_are_kept() -> None:
    held = ReplanSettings(min_prefill=5, min_decode=2)
    running = replace(OPTIMUM, n_p=6, n_d=2)
    first = replan(running, SEEN, SITE, SLO, held)
    assert first is not None
    assert first.n_p == 5
    later = replace(SEEN, at_s=5000.0)
    second = replan(first.applied_to(running, at_s=1001.0), later, SITE, SLO, held)
    assert second is None or second.n_p == 5
    impossible = ReplanSettings(min_prefill=9)
    third = replan(running, SEEN, SITE, SLO, impossible)
    assert third is None or third.n_p == 6


def test_longer_prompts_move_threshold_and_roles() -> None:
    longer = replace(SEEN, lengths=TruncatedLogNormal(10.6, 1.0, 128, 131072))
    running, revisions = settle(OPTIMUM, longer)
    goal = plan(SITE, replace(DEMAND, lengths=longer.lengths), expectation=Expectation.EXACT)
    assert revisions
    assert revisions[-1].lambda_after >= goal.lambda_max / 1.05
    assert running.threshold_tokens != OPTIMUM.threshold_tokens


def test_a_dead_link_brings_everything_home() -> None:
    dead = replace(SITE, remotes=(replace(SITE.remotes[0], egress_bytes_per_s=0.0),))
    revision = replan(OPTIMUM, SEEN, dead, SLO)
    assert revision is not None
    assert float(DEMAND.lengths.above(np.array(float(revision.threshold_tokens)))) == 0
    assert (revision.lambda_before, revision.n_p) == (0.0, 4)
    assert revision.lambda_after > 0


def test_a_missed_ttft_is_kept_again_though_fewer_get_through() -> None:
    slo = Slo(DEMAND.tpot_s, TtftGoal(BEST.ttft.arrival_mean_s - 0.1))
    revision = replan(OPTIMUM, SEEN, SITE, slo)
    assert revision is not None
    assert revision.reason is RevisionReason.TTFT
    assert revision.lambda_after < revision.lambda_before
    assert replan(revision.applied_to(OPTIMUM, at_s=1.0), SEEN, SITE, slo) is None


def test_a_ttft_that_nothing_keeps_is_not_asked_for() -> None:
    assert replan(OPTIMUM, SEEN, SITE, Slo(DEMAND.tpot_s, TtftGoal(0.01))) is None


def test_a_sketch_of_the_traffic_is_as_good_as_its_distribution() -> None:
    sketch = LengthSketch(half_life_s=1e9)
    for tokens in DEMAND.lengths.sample(np.random.default_rng(5), 20_000).tolist():
        sketch.add(tokens, at_s=0.0)
    lengths = sketch.lengths()
    assert lengths is not None
    seen = replace(SEEN, lengths=lengths)
    assert replan(OPTIMUM, seen, SITE, SLO) is None
    revision = replan(replace(OPTIMUM, threshold_tokens=0), seen, SITE, SLO)
    assert revision is not None
    assert revision.threshold_tokens == pytest.approx(BEST.threshold_tokens, rel=0.05)


def test_a_prompt_of_millions_of_tokens_is_planned_as_well() -> None:
    huge = replace(SEEN, lengths=HistogramLengths(np.array([100.0, 2e7]), np.array([0.9, 0.1])))
    assert isinstance(replan(OPTIMUM, huge, SITE, SLO), Revision | None)


def test_settings_refuse_what_cannot_be() -> None:
    for changes in ({"min_gain": -1}, {"min_decode": 0}, {"max_moves_per_step": 0}):
        with pytest.raises(ConfigError, match="allowed"):
            ReplanSettings(**changes)


def settle(running: Running, seen: Observation) -> tuple[Running, list[Revision]]:
    """Apply revisions, each well after the last, until there are no more."""
    revisions = []
    for step in range(50):
        at_s = seen.at_s + 400.0 * step
        revision = replan(running, replace(seen, at_s=at_s), SITE, SLO)
        if revision is None:
            return running, revisions
        revisions.append(revision)
        running = revision.applied_to(running, at_s=at_s)
    raise AssertionError("no end of revisions")


def test_constraints_of_a_plan_and_of_a_replan_agree() -> None:
    held = Constraints(n_p=4, n_d=4)
    running = replace(OPTIMUM, n_p=4, n_d=4, threshold_tokens=0, changed_at_s=SEEN.at_s)
    revision = replan(running, SEEN, SITE, SLO)
    assert revision is not None
    same = plan(SITE, DEMAND, held, expectation=Expectation.EXACT)
    assert revision.lambda_after == pytest.approx(same.lambda_max)


def test_thousands_of_instances_and_prompts_of_millions_of_tokens_are_searched_coarsely() -> None:
    site = SITE.resized([400], 3000)
    lengths = HistogramLengths(np.array([1_000.0, 10_000_000.0]), np.array([0.9, 0.1]))
    running = replace(OPTIMUM, threshold_tokens=20_000_000, n_prfaas=(400,), n_p=1, n_d=2999)
    seen = replace(SEEN, lengths=lengths, arrival_rate_per_s=1e6)
    revision = replan(running, seen, site, SLO, ReplanSettings(max_moves_per_step=100))
    assert revision is not None
    assert revision.lambda_after > revision.lambda_before
