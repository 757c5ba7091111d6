"""Plans: seeded, replayable, and what is asked for in them."""

from dataclasses import replace

import pytest

from prfaas.errors import ConfigError
from prfaas_loadtest.drills import Drill, make_plan
from prfaas_loadtest.drills.fault import Fault, FaultKind
from prfaas_loadtest.drills.link_faults import link_with
from prfaas_loadtest.drills.plan import probe
from prfaas_loadtest.drills.spec import Expectations, Load, SiteSpec

TARGETS = ["a-prefill-0", "b-decode-0", "b-decode-1", "b-decode-2", "b-decode-0.agent"]
LOAD = Load(seconds=10.0, requests_per_s=20.0)


def drill(*faults: Fault, load: Load = LOAD) -> Drill:
    return Drill("d", "about", SiteSpec(), load, faults, Expectations())


CUT = Fault(FaultKind.PARTITION, 1.0, 2.0)


def test_the_same_seed_is_the_same_plan_and_another_is_another() -> None:
    first, again = (make_plan(drill(CUT), seed=7, targets=TARGETS) for _ in range(2))
    assert first == again
    assert first.digest == again.digest
    assert make_plan(drill(CUT), seed=8, targets=TARGETS).digest != first.digest


def test_two_drills_of_one_seed_ask_with_other_prompts() -> None:
    """On one site, prompts that are cached would take other ways."""
    one = make_plan(drill(CUT), seed=1, targets=TARGETS)
    other = make_plan(replace(drill(CUT), name="other"), seed=1, targets=TARGETS)
    assert not {r.prompt_seed for r in one.requests} & {r.prompt_seed for r in other.requests}


def test_the_load_is_as_asked_for() -> None:
    plan = make_plan(drill(CUT), seed=1, targets=TARGETS)
    assert 140 < len(plan.requests) < 260
    assert [r.number for r in plan.requests] == list(range(len(plan.requests)))
    times = [r.at_s for r in plan.requests]
    assert times == sorted(times)
    assert times[-1] < LOAD.seconds
    long = [r for r in plan.requests if r.is_long]
    assert 0.35 < len(long) / len(plan.requests) < 0.65
    assert all(7200 <= r.prompt_tokens <= 8800 for r in long)
    request = plan.requests[0]
    assert len(request.prompt()) == request.prompt_tokens
    assert request.prompt() == request.prompt()
    assert plan.requests[1].prompt()[:8] != request.prompt()[:8]


def test_a_surge_brings_more_requests_while_it_lasts() -> None:
    surge = Fault(FaultKind.SURGE, 4.0, 2.0, value=5.0)
    plan = make_plan(drill(surge), seed=1, targets=TARGETS)
    within = [r for r in plan.requests if 4 <= r.at_s < 6]
    assert 150 < len(within) < 250
    assert plan.faults == ()


def test_clients_give_up_while_they_are_to_and_not_else() -> None:
    abandon = Fault(FaultKind.ABANDON, 2.0, 4.0, value=0.5)
    plan = make_plan(drill(abandon), seed=1, targets=TARGETS)
    given_up = [r for r in plan.requests if r.abandon_after_s]
    assert all(2 <= r.at_s < 6 for r in given_up)
    assert 25 < len(given_up) < 60


def test_a_pattern_hits_one_of_many_and_the_seed_says_which() -> None:
    kill = Fault(FaultKind.KILL, 1.0, target="b-decode-*")
    hit = {make_plan(drill(kill), seed=s, targets=TARGETS).faults[0].target for s in range(20)}
    assert hit == set(TARGETS[1:4])
    agent = replace(kill, target="b-decode-*.agent")
    assert make_plan(drill(agent), seed=1, targets=TARGETS).faults[0].target == TARGETS[4]
    with pytest.raises(ConfigError, match="'b-nothing': allowed: a-prefill-0"):
        make_plan(drill(replace(kill, target="b-nothing")), seed=1, targets=TARGETS)


def test_a_flapping_link_is_cut_for_half_of_each_period() -> None:
    flap = Fault(FaultKind.FLAP, 1.0, 5.0, value=2.0, way="a-b")
    cuts = make_plan(drill(flap), seed=1, targets=TARGETS).faults
    assert [(c.at_s, c.seconds) for c in cuts] == [(1, 1), (3, 1), (5, 1)]
    assert {(c.kind, c.way) for c in cuts} == {(FaultKind.PARTITION, "a-b")}


def test_probes_are_nobody_elses_prompts() -> None:
    plan = make_plan(drill(CUT), seed=1, targets=TARGETS)
    seeds = {r.prompt_seed for r in plan.requests}
    probes = [probe(n, seed=1, load=LOAD) for n in range(50)]
    assert len({p.prompt_seed for p in probes} - seeds) == 50


def test_of_faults_that_hold_at_once_the_worst_counts() -> None:
    base = {
        way: {"loss": 0.01, "delay_s": 0.01, "rate_bits_per_s": 1000_000} for way in ("a-b", "b-a")
    }
    faults = [
        Fault(FaultKind.LOSS, 0.0, 1.0, value=0.1),
        Fault(FaultKind.LOSS, 0.0, 1.0, value=0.05, way="a-b"),
        Fault(FaultKind.RATE, 0.0, 1.0, value=0.5),
        Fault(FaultKind.RATE, 0.0, 1.0, value=0.1, way="b-a"),
        Fault(FaultKind.DELAY, 0.0, 1.0, value=0.2, way="a-b"),
    ]
    link = link_with(base, faults)
    assert link["a-b"] == {"loss": 0.1, "delay_s": 0.2, "rate_bits_per_s": 500_000}
    assert link["b-a"] == {"loss": 0.1, "delay_s": 0.01, "rate_bits_per_s": 100_000}
    assert base["a-b"]["loss"] == 0.01
    with pytest.raises(ConfigError, match="a-c"):
        link_with(base, [Fault(FaultKind.LOSS, 0.0, 1.0, value=0.1, way="a-c")])
