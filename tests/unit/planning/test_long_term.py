import json
from dataclasses import replace

import numpy as np
import pytest

from prfaas.errors import ConfigError
from prfaas.plan_record import PlanRecord, RoleCounts, plan_problems
from prfaas.planning.conversion import next_conversions
from prfaas.planning.demand_book import DemandBook, DemandSeen, merged
from prfaas.planning.long_term import next_revision, plan_after, running_now, stages_seen
from prfaas.planning.paper import paper_case
from prfaas.planning.replan import Running
from prfaas.records import NodeRecord, Role
from prfaas.routing import NodeState

CASE = paper_case()


def node(name: str, *, in_flight: int = 0, backlog_tokens: int = 0, **more: object) -> NodeState:
    region, role, _ = name.split("-")
    record = NodeRecord(name, Role(role), region, "", "", **{"role_switch": True, **more})  # type: ignore[arg-type]
    return NodeState(record, in_flight=in_flight, backlog_tokens=backlog_tokens)


def nodes(prefill: int, decode: int, region: str = "b") -> list[NodeState]:
    found = [node(f"{region}-prefill-{i}") for i in range(prefill)]
    return found + [node(f"{region}-decode-{i}") for i in range(decode)]


def moves(n_p: int, n_d: int, states: list[NodeState]) -> list[tuple[str, str]]:
    roles = {"b": RoleCounts(n_p, n_d)}
    return [(c.node.name, str(c.role)) for c in next_conversions(roles, states)]


def test_a_conversion_needs_too_many_of_one_role_and_too_few_of_the_other() -> None:
    assert moves(3, 5, nodes(3, 5)) == []
    assert moves(4, 4, nodes(3, 5)) == [("b-decode-0", "prefill")]
    assert moves(2, 6, nodes(3, 5)) == [("b-prefill-0", "decode")]
    assert moves(4, 4, nodes(3, 4)) == []  # one is away: nothing is wrong with the roles
    assert moves(4, 4, nodes(4, 5)) == []
    assert moves(0, 2, nodes(1, 1)) == []  # never the last of its role


def test_the_least_loaded_node_goes_and_only_one_that_can() -> None:
    busy = [node("b-decode-0", in_flight=3), node("b-decode-1", in_flight=1), node("b-decode-2")]
    assert moves(1, 2, busy) == [("b-decode-2", "prefill")]
    busy[2] = node("b-decode-2", role_switch=False)
    assert moves(1, 2, busy) == [("b-decode-1", "prefill")]
    assert moves(1, 2, [node(f"b-decode-{i}", role_switch=False) for i in range(3)]) == []


def test_one_at_a_time_per_region_and_other_regions_are_left_alone() -> None:
    draining = [*nodes(1, 4), node("b-decode-9", draining=True)]
    assert moves(3, 3, draining) == []
    roles = {"b": RoleCounts(2, 1), "c": RoleCounts(2, 1)}
    states = nodes(1, 2) + nodes(1, 2, "c") + nodes(1, 9, "d")
    found = next_conversions(roles, states)
    assert [c.node.name for c in found] == ["b-decode-0", "c-decode-0"]


def test_stages_are_seen_by_queue_and_by_use() -> None:
    states = [
        node("a-prefill-0", in_flight=1, backlog_tokens=4000),
        node("b-prefill-0", in_flight=1, backlog_tokens=1000),
        node("b-prefill-1"),
        node("b-decode-0", in_flight=12, max_running_requests=8),
        node("c-decode-0", in_flight=99),
    ]
    seen = stages_seen(
        states, region="b", tokens_per_s={"a": 2000.0, "b": 1000.0}, decode_slots=64, answer_s=10.0
    )
    assert (seen.prfaas.queue_s, seen.prfaas.utilisation) == (2.0, 1.0)
    assert (seen.prefill.queue_s, seen.prefill.utilisation) == (0.5, 0.5)
    assert (seen.decode.queue_s, seen.decode.utilisation) == (5.0, 1.0)
    assert seen.bottleneck == "decode"


def book(requests: int, tokens: int, output_tokens: int = 1024) -> DemandBook:
    found = DemandBook(began_s=0.0)
    for number in range(requests):
        found.note_request(tokens, at_s=number * 0.5)
        found.note_output(output_tokens, at_s=number * 0.5)
    return found


def test_demand_is_estimated_from_what_passes() -> None:
    assert DemandBook(began_s=0.0).seen(at_s=9.0) is None
    seen = book(1000, 5000).seen(at_s=500.0)
    assert seen is not None
    assert seen.rate_per_s == pytest.approx(2.0, rel=0.02)
    assert seen.mean_tokens == pytest.approx(5000)
    assert seen.output_tokens == pytest.approx(1024)


def drawn(output_tokens: int = 1024) -> DemandSeen:
    """Return the estimates after 2000 requests of the paper's lengths, two per second."""
    found = DemandBook(began_s=0.0)
    lengths = CASE.demand.lengths.sample(np.random.default_rng(1), 2000)
    for number, tokens in enumerate(lengths.tolist()):
        found.note_request(tokens, at_s=number * 0.5)
        found.note_output(output_tokens, at_s=number * 0.5)
    seen = found.seen(at_s=1000.0)
    assert seen is not None
    return seen


def test_the_demand_of_several_gateways_is_added_up() -> None:
    one, other = book(1000, 1000, 10).seen(at_s=500.0), book(500, 4000, 40).seen(at_s=250.0)
    assert one is not None
    assert other is not None
    both = merged([one, other])
    assert both is not None
    assert both.rate_per_s == pytest.approx(one.rate_per_s + other.rate_per_s)
    assert both.requests == pytest.approx(one.requests + other.requests)
    share = one.requests / both.requests
    assert both.mean_tokens == pytest.approx(1000 * share + 4000 * (1 - share))
    assert both.output_tokens == pytest.approx(10 * share + 40 * (1 - share))
    again = merged([one, one])
    assert again is not None
    assert again.lengths.cells()[0] == pytest.approx([1000.0])
    assert merged([]) is None


def test_demand_travels_as_json_and_nonsense_does_not() -> None:
    seen = drawn()
    back = DemandSeen.from_json(json.loads(json.dumps(seen.to_json())))
    assert back.lengths.cells()[0].tolist() == seen.lengths.cells()[0].tolist()
    assert back.lengths.cells()[1] == pytest.approx(seen.lengths.cells()[1])
    assert (back.rate_per_s, back.requests) == (seen.rate_per_s, seen.requests)
    good: dict[str, object] = {"rate_per_s": 1, "output_tokens": 1, "requests": 1}
    good |= {"lengths": [1, 2], "weights": [1, 1]}
    DemandSeen.from_json(good)
    for wrong in (
        {"lengths": [2, 1]},
        {"weights": [1]},
        {"lengths": []},
        {"rate_per_s": -1},
        {"requests": True},
        {"output_tokens": None},
        {"weights": ["1", "1"]},
        {"lengths": [1, float("inf")]},
    ):
        with pytest.raises(ConfigError):
            DemandSeen.from_json(good | wrong)
    with pytest.raises(ConfigError):
        DemandSeen.from_json([])


def engines() -> list[NodeRecord]:
    remote = [node(f"prfaas-prefill-{i}").record for i in range(4)]
    return remote + [state.record for state in nodes(3, 5, "pd")]


def test_what_runs_is_what_the_nodes_are() -> None:
    plan = PlanRecord(7, 100, converted_at_s=50.0)
    running = running_now(plan, engines(), CASE, region="pd", threshold_tokens=100)
    assert running == Running(100, (4,), 3, 5, 50.0, 7)
    drained = [replace(one, draining=one.name == "pd-prefill-0") for one in engines()]
    running = running_now(None, drained, CASE, region="pd", threshold_tokens=100)
    assert running == Running(100, (4,), 2, 5, 0.0, 0)
    only = [one for one in engines() if one.role is Role.PREFILL]
    assert running_now(None, only, CASE, region="pd", threshold_tokens=100) is None


def test_a_plan_follows_the_demand_and_what_is_good_stays() -> None:
    running = running_now(None, engines(), CASE, region="pd", threshold_tokens=100)
    demand = drawn()
    seen = stages_seen([], region="pd", tokens_per_s={}, decode_slots=1, answer_s=1.0)
    assert running is not None
    revision = next_revision(running, demand, seen, CASE, at_s=1000.0)
    assert revision is not None
    plan = plan_after(revision, running, None, region="pd", by="g", at_s=1000.0)
    assert plan.lambda_after > plan.lambda_before
    assert (plan.by, plan.at_s, plan.pinned) == ("g", 1000.0, False)
    assert sum((plan.roles["pd"].n_p, plan.roles["pd"].n_d)) == 8
    settled = running
    for step in range(20):  # to the best, one step at a time
        at_s = 1000.0 + 1000.0 * step
        revision = next_revision(settled, demand, seen, CASE, at_s=at_s)
        if revision is None:
            break
        settled = revision.applied_to(settled, at_s=at_s)
    assert next_revision(settled, demand, seen, CASE, at_s=1e6) is None


def test_roles_wait_for_their_cooldown_and_a_plan_says_when_they_changed() -> None:
    running = Running(20_000, (4,), 1, 7, changed_at_s=900.0, version=3)
    demand = replace(drawn(output_tokens=10), rate_per_s=18.0)
    seen = stages_seen([], region="pd", tokens_per_s={}, decode_slots=1, answer_s=1.0)
    soon = next_revision(running, demand, seen, CASE, at_s=1000.0)
    assert soon is None or (soon.n_p, soon.n_d) == (1, 7)
    later = next_revision(running, demand, seen, CASE, at_s=1300.0)
    assert later is not None
    assert (later.n_p, later.n_d) == (2, 6)
    before = PlanRecord(3, 20_000, {"pd": RoleCounts(1, 7)}, converted_at_s=900.0)
    plan = plan_after(later, running, before, region="pd", by="g", at_s=1300.0)
    assert (plan.converted_at_s, plan.why) == (1300.0, "more_prefill")


def test_plans_survive_their_json() -> None:
    plan = PlanRecord(3, 20_000, {"pd": RoleCounts(1, 7)}, by="g", why="threshold", pinned=True)
    assert PlanRecord.from_json(plan.to_json()) == plan


def test_problems_of_a_plan_are_told() -> None:
    assert list(plan_problems(512, {"b": {"n_p": 0, "n_d": 1}}, "")) == []
    assert len(list(plan_problems(-1, {"b": {"n_p": -1, "n_d": 0}}, 7))) == 4
