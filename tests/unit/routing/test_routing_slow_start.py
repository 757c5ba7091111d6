import pytest

from prfaas.records import NodeRecord, Role
from prfaas.routing import NodeState, RouteRequest, SlowStart, pick_best


def test_the_nodes_of_the_first_look_are_warm_and_later_ones_are_not() -> None:
    ramp = SlowStart(ramp_s=10.0, least=0.1)
    ramp.see([], 0.0)  # before the first snapshot
    ramp.see([("a", "s1")], 1.0)
    ramp.see([("a", "s1"), ("b", "s1")], 100.0)
    assert ramp.share("a", 100.0) == 1.0
    assert [ramp.share("b", 100.0 + passed) for passed in (0, 1, 5, 10, 99)] == [
        0.1,
        0.1,
        0.5,
        1.0,
        1.0,
    ]


def test_a_new_session_and_a_recovery_begin_again() -> None:
    ramp = SlowStart(ramp_s=10.0)
    ramp.see([("a", "s1")], 0.0)
    ramp.see([("a", "s2")], 50.0)
    assert ramp.share("a", 50.0) == pytest.approx(0.1)
    ramp.see([("a", "s2")], 55.0)  # it is still the same
    assert ramp.share("a", 55.0) == pytest.approx(0.5)
    ramp.restart("a", "s2", 70.0)
    assert ramp.share("a", 72.0) == pytest.approx(0.2)


def test_a_starting_node_gets_its_share_of_a_stream_of_requests() -> None:
    def node(name: str, share: float) -> NodeState:
        return NodeState(NodeRecord(name, Role.PREFILL, "b", "", ""), share=share)

    states = {"old": node("old", 1.0), "new": node("new", 0.25)}
    request = RouteRequest("", 100, 100)
    for _ in range(1000):
        best = pick_best(list(states.values()), request)
        assert best is not None
        name = best.record.name
        backlog = states[name].backlog_tokens + 100
        states[name] = states[name]._replace(backlog_tokens=backlog)
    assert states["new"].backlog_tokens / 100 == pytest.approx(200, abs=2)


def test_an_idle_node_that_starts_is_used_and_so_is_the_only_one() -> None:
    record = NodeRecord("new", Role.DECODE, "b", "", "")
    new = NodeState(record, share=0.1)
    busy = NodeState(record.__class__("old", Role.DECODE, "b", "", ""), in_flight=1)
    request = RouteRequest("", 100, 100)
    assert pick_best([new], request) is new
    assert pick_best([new, busy], request) is new
    assert pick_best([new._replace(in_flight=1), busy], request) is busy
