from typing import Any

import pytest

from prfaas.reasons import Reason, Route
from prfaas.records import NodeRecord, Role
from prfaas.routing import (
    Bandwidth,
    Decision,
    LinkRule,
    Move,
    NodeState,
    Refusal,
    Routable,
    RouteRequest,
    Snapshot,
    decide,
    snapshot_of,
)
from prfaas.routing import decide_retry as retry

T = 100


def node(
    name: str,
    *,
    in_flight: int = 0,
    prefix_tokens: int = 0,
    quarantined_until_s: float = 0.0,
    backlog_tokens: int = 0,
    **changes: Any,
) -> NodeState:
    """Return a node named `<region>-<role>-<number>`."""
    region, role, _ = name.split("-")
    values: dict[str, Any] = {"model_id": "m", "context_tokens": 1000, **changes}
    record = NodeRecord(name, Role(role), region, f"http://{name}", "s", **values)
    return NodeState(record, in_flight, prefix_tokens, quarantined_until_s, backlog_tokens)


def request(prompt_tokens: int = 50, *, total_tokens: int | None = None) -> RouteRequest:
    return RouteRequest("m", prompt_tokens, total_tokens or prompt_tokens + 16)


def snapshot(*nodes: NodeState) -> Snapshot[Routable]:
    return snapshot_of(nodes, region="b", threshold_tokens=T)


A, B, D = node("a-prefill-0"), node("b-prefill-0"), node("b-decode-0")
DRAINING = node("b-prefill-0", draining=True)


@pytest.mark.parametrize(
    ("prompt_tokens", "nodes", "route", "reason", "prefill"),
    [
        (T, (A, B, D), "local", "below_threshold", "b-prefill-0"),
        (T + 1, (A, B, D), "offload", "above_threshold", "a-prefill-0"),
        (T + 1, (B, D), "local", "no_remote_prefill", "b-prefill-0"),
        (1, (A, D), "offload", "no_local_prefill", "a-prefill-0"),
        (T + 1, (A, D), "offload", "no_local_prefill", "a-prefill-0"),
        (1, (A, DRAINING, D), "offload", "no_local_prefill", "a-prefill-0"),
    ],
)
def test_route(
    prompt_tokens: int, nodes: tuple[NodeState, ...], route: str, reason: str, prefill: str
) -> None:
    decision = decide(request(prompt_tokens), snapshot(*nodes), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.reason) == (Route(route), Reason(reason))
    assert decision.prefill.name == prefill
    assert decision.decode.name == "b-decode-0"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ((), "no_decode"),
        ((A, B), "no_decode"),
        ((D,), "no_prefill"),
        ((D, DRAINING), "no_prefill"),
        ((A, B, node("b-decode-0", draining=True)), "no_decode"),
        ((A, B, node("a-decode-0")), "no_decode"),
        ((A, B, node("b-decode-0", model_id="other")), "no_decode"),
        ((node("b-prefill-0", model_id="other"), D), "no_prefill"),
        ((B, node("b-decode-0", context_tokens=60)), "no_decode"),
        ((node("b-prefill-0", context_tokens=60), D), "no_prefill"),
    ],
)
def test_refusal(nodes: tuple[NodeState, ...], reason: str) -> None:
    assert decide(request(), snapshot(*nodes), 0.0) == Refusal(Reason(reason))


def test_unknown_context_is_no_limit() -> None:
    free = snapshot(node("b-prefill-0", context_tokens=0), node("b-decode-0", context_tokens=0))
    assert isinstance(decide(request(50_000), free, 0.0), Decision)


def test_the_prefix_at_the_local_prefill_counts_and_the_remote_one_does_not() -> None:
    local = node("b-prefill-0", prefix_tokens=64)
    decision = decide(request(T + 64), snapshot(A, local, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.prefix_tokens) == (Route.LOCAL, 64)
    decision = decide(request(T + 65), snapshot(A, local, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.prefix_tokens) == (Route.OFFLOAD, 0)
    remote = node("a-prefill-0", prefix_tokens=128)
    decision = decide(request(T + 1), snapshot(remote, B, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.prefix_tokens) == (Route.OFFLOAD, 128)


@pytest.mark.parametrize(
    ("prefills", "chosen"),
    [
        ("busy warm", "busy"),  # 50 queued and 10 to compute beat 64 to compute
        ("busier warm idle", "warm"),  # 80 queued and 10 to compute do not
        ("idle loaded", "idle"),  # equal work: the one with less in flight
        ("other idle", "idle"),  # all equal: by name
    ],
)
def test_the_node_with_the_least_to_compute_prefills(prefills: str, chosen: str) -> None:
    kinds = {
        "busy": node("b-prefill-4", backlog_tokens=50, in_flight=1, prefix_tokens=90),
        "busier": node("b-prefill-0", backlog_tokens=80, in_flight=1, prefix_tokens=90),
        "warm": node("b-prefill-3", prefix_tokens=36),
        "idle": node("b-prefill-1"),
        "other": node("b-prefill-2"),
        "loaded": node("b-prefill-0", in_flight=1),
    }
    nodes = [kinds[kind] for kind in prefills.split()]
    decision = decide(request(100), snapshot(D, *nodes), 0.0)
    assert isinstance(decision, Decision)
    assert decision.prefill.name == kinds[chosen].record.name


def test_the_decode_node_with_the_least_in_flight_decodes() -> None:
    decodes = (node("b-decode-1", in_flight=2), node("b-decode-0", in_flight=3))
    decision = decide(request(), snapshot(B, *decodes), 0.0)
    assert isinstance(decision, Decision)
    assert decision.decode.name == "b-decode-1"


def with_link(rule: LinkRule, *nodes: NodeState) -> Snapshot[Routable]:
    plain = snapshot(*nodes)
    return plain._replace(remotes=tuple(r._replace(link=rule) for r in plain.remotes))


def test_while_bandwidth_is_abundant_the_best_cache_anywhere_counts_and_moves() -> None:
    rule = LinkRule(Bandwidth.ABUNDANT)
    remote = node("a-prefill-0", prefix_tokens=200)
    decision = decide(request(200 + T), with_link(rule, remote, B, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.move) == (Route.LOCAL, Move(remote.record, 200))
    decision = decide(request(201 + T), with_link(rule, remote, B, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.move) == (Route.OFFLOAD, None)
    local = node("b-prefill-0", prefix_tokens=64)
    decision = decide(request(65 + T), with_link(rule, A, local, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.move) == (Route.OFFLOAD, Move(local.record, 64))


def test_while_bandwidth_is_scarce_nothing_moves() -> None:
    remote = node("a-prefill-0", prefix_tokens=200)
    decision = decide(request(200 + T), with_link(LinkRule(), remote, B, D), 0.0)
    assert isinstance(decision, Decision)
    assert (decision.route, decision.move) == (Route.OFFLOAD, None)


@pytest.mark.parametrize(
    ("prompt_tokens", "rule", "reason"),
    [
        (2 * T, LinkRule(threshold_factor=2.0), "link_congested"),
        (2 * T + 1, LinkRule(threshold_factor=2.0), "above_threshold"),
        (900, LinkRule(closed=True), "link_closed"),
        (900, LinkRule(wait_s=31.0), "link_closed"),
        (900, LinkRule(wait_s=30.0), "above_threshold"),
        (T, LinkRule(closed=True), "below_threshold"),
    ],
)
def test_a_congested_link_brings_the_shortest_offloads_home(
    prompt_tokens: int, rule: LinkRule, reason: str
) -> None:
    at = with_link(rule, A, B, D)._replace(longest_wait_s=30.0)
    decision = decide(request(prompt_tokens), at, 0.0)
    assert isinstance(decision, Decision)
    assert decision.reason is Reason(reason)


def test_a_congested_link_sends_no_more_home_than_there_is_room_for() -> None:
    busy = node("b-prefill-0", backlog_tokens=T + 1, in_flight=1)
    for local, wait_s, reason in (
        (replace_backlog(busy, T), 9 * T, "link_congested"),
        (replace_backlog(busy, T), 0, "above_threshold"),  # offloading is faster
        (busy, 9 * T, "above_threshold"),  # there is no room
    ):
        rule = LinkRule(threshold_factor=8.0, wait_s=wait_s)
        decision = decide(request(2 * T), with_link(rule, A, local, D), 0.0)
        assert isinstance(decision, Decision)
        assert decision.reason is Reason(reason)
    closed = decide(request(2 * T), with_link(LinkRule(closed=True), A, busy, D), 0.0)
    assert isinstance(closed, Decision)
    assert closed.reason is Reason.LINK_CLOSED


def test_what_comes_home_is_refused_beyond_the_budget_and_short_prompts_never() -> None:
    closed = LinkRule(closed=True)
    for backlog_tokens, retry_after_s in ((1000, None), (1001, 1.0), (1500, 5.0), (9000, 30.0)):
        local = replace_backlog(B, backlog_tokens)
        at = with_link(closed, A, local, D)._replace(absorb_tokens=1000, tokens_per_s=100.0)
        outcome = decide(request(T + 1), at, 0.0)
        again = retry(request(T + 1), at, 0.0, failed=offload(), avoid=frozenset())
        short = decide(request(T), at, 0.0)
        assert isinstance(short, Decision)
        if retry_after_s is None:
            assert isinstance(outcome, Decision)
            assert isinstance(again, Decision)
        else:
            assert outcome == again == Refusal(Reason.FALLBACK_BUDGET, retry_after_s)


def test_the_budget_is_not_for_prompts_that_were_to_be_local_anyway() -> None:
    local = replace_backlog(B, 5000)
    at = snapshot(local, node("b-prefill-1", backlog_tokens=5000), D)._replace(absorb_tokens=10)
    first = decide(request(T), at, 0.0)
    assert isinstance(first, Decision)
    again = retry(request(T), at, 0.0, failed=first, avoid=frozenset({first.prefill.name}))
    assert isinstance(again, Decision)
    assert again.reason is Reason.LOCAL_FAILED
    alone = decide(request(900), at, 0.0)
    assert isinstance(alone, Decision)
    assert alone.reason is Reason.NO_REMOTE_PREFILL


def replace_backlog(state: NodeState, tokens: int) -> NodeState:
    return state._replace(backlog_tokens=tokens)


def test_of_several_regions_the_one_behind_the_better_link_prefills() -> None:
    plain = snapshot(A, node("c-prefill-0", backlog_tokens=500), B, D)
    a, c = plain.remotes
    for changed, prefill in (
        ((a, c), "a-prefill-0"),
        # 200 tokens at 1 per second against 700.
        ((a._replace(link=LinkRule(wait_s=499)), c), "a-prefill-0"),
        ((a._replace(link=LinkRule(wait_s=701)), c), "c-prefill-0"),
        ((a._replace(link_tokens_per_s=0.25), c), "c-prefill-0"),
        ((a, c._replace(tokens_per_s=4.0)), "c-prefill-0"),
        ((a._replace(link=LinkRule(closed=True)), c), "c-prefill-0"),
        ((a._replace(link=LinkRule(threshold_factor=1.5)), c), "a-prefill-0"),
    ):
        decision = decide(request(T * 2), plain._replace(remotes=changed), 0.0)
        assert isinstance(decision, Decision)
        assert decision.prefill.name == prefill, changed


def test_the_order_of_the_nodes_does_not_matter() -> None:
    nodes = [A, B, D, node("b-prefill-1"), node("b-decode-1")]
    assert decide(request(), snapshot(*nodes), 0.0) == decide(
        request(), snapshot(*reversed(nodes)), 0.0
    )


def test_quarantined_nodes_are_left_alone_until_their_time() -> None:
    local = node("b-prefill-0", quarantined_until_s=10.0)
    decision = decide(request(), snapshot(A, local, D), 9.9)
    assert isinstance(decision, Decision)
    assert decision.reason is Reason.NO_LOCAL_PREFILL
    decision = decide(request(), snapshot(A, local, D), 10.0)
    assert isinstance(decision, Decision)
    assert decision.reason is Reason.BELOW_THRESHOLD
    remote = node("a-prefill-0", quarantined_until_s=10.0)
    decision = decide(request(T + 1), snapshot(remote, B, D), 0.0)
    assert isinstance(decision, Decision)
    assert decision.reason is Reason.NO_REMOTE_PREFILL


def test_when_all_are_quarantined_a_try_is_better_than_a_refusal() -> None:
    nodes = [node(n, quarantined_until_s=10.0) for n in ("b-prefill-0", "b-decode-0")]
    assert isinstance(decide(request(), snapshot(*nodes), 0.0), Decision)


def offload() -> Decision:
    decision = decide(request(T + 1), snapshot(A, B, D), 0.0)
    assert isinstance(decision, Decision)
    assert decision.route is Route.OFFLOAD
    return decision


def test_a_failed_offload_comes_home() -> None:
    again = retry(
        request(T + 1),
        snapshot(A, B, D),
        0.0,
        failed=offload(),
        avoid=frozenset({"a-prefill-0"}),
    )
    assert isinstance(again, Decision)
    assert (again.route, again.reason) == (Route.FALLBACK, Reason.OFFLOAD_FAILED)
    assert again.prefill.name == "b-prefill-0"


def test_a_failed_offload_without_a_home_tries_another_remote_prefill() -> None:
    nodes = snapshot(A, node("c-prefill-0"), D)
    again = retry(request(T + 1), nodes, 0.0, failed=offload(), avoid=frozenset({"a-prefill-0"}))
    assert isinstance(again, Decision)
    assert (again.route, again.prefill.name) == (Route.OFFLOAD, "c-prefill-0")
    again = retry(
        request(T + 1), snapshot(A, D), 0.0, failed=offload(), avoid=frozenset({"a-prefill-0"})
    )
    assert again == Refusal(Reason.NO_PREFILL)


@pytest.mark.parametrize(
    ("avoid", "prefill", "decode", "route"),
    [
        ("b-prefill-0", "b-prefill-1", "b-decode-0", Route.LOCAL),
        ("b-decode-0", "b-prefill-0", "b-decode-1", Route.LOCAL),
    ],
)
def test_a_failed_local_attempt_goes_to_other_nodes(
    avoid: str, prefill: str, decode: str, route: Route
) -> None:
    nodes = snapshot(A, B, D, node("b-prefill-1"), node("b-decode-1"))
    failed = decide(request(), nodes, 0.0)
    assert isinstance(failed, Decision)
    again = retry(request(), nodes, 0.0, failed=failed, avoid=frozenset({avoid}))
    assert isinstance(again, Decision)
    assert (again.prefill.name, again.decode.name) == (prefill, decode)
    assert (again.route, again.reason) == (route, Reason.LOCAL_FAILED)


def test_a_failed_only_decode_is_a_refusal() -> None:
    failed = decide(request(), snapshot(B, D), 0.0)
    assert isinstance(failed, Decision)
    again = retry(request(), snapshot(B, D), 0.0, failed=failed, avoid=frozenset({"b-decode-0"}))
    assert again == Refusal(Reason.NO_DECODE)
