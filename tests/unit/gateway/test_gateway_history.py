import re

import pytest

from prfaas.reasons import Reason, Route
from prfaas.routing import LinkRule
from prfaas_gateway.dashboard import page
from prfaas_gateway.history import History, LinkPoint, Point, rates
from prfaas_gateway.overview import MAX_NODES, health_of, link_state, regions
from prfaas_gateway.recent_requests import Finished, RecentRequests, TtftSeen

LOCAL = Finished(Route.LOCAL, Reason.BELOW_THRESHOLD, 200)
FAILED = Finished(Route.NONE, Reason.NO_DECODE, 503)


def point(at_s: float, factor: float = 1.0) -> Point:
    link = LinkPoint(100, factor, False, None, None, None, None, None)
    return Point(at_s, 0, 100, 1, {}, 0.0, None, None, links={"a": link})


def filled(count: int, limit: int) -> History:
    history, requests = History(limit), RecentRequests()
    for number in range(count):
        requests.counts.clear()
        requests.note(*(LOCAL.route, LOCAL.reason, LOCAL.code))
        history.add(point(float(number), 1.0 + number), requests.counts.copy())
    return history


def test_a_history_forgets_its_oldest_points_and_gives_what_is_newer() -> None:
    history = filled(10, limit=4)
    assert [one.at_s for one in history.since(0.0)] == [6.0, 7.0, 8.0, 9.0]
    assert [one.at_s for one in history.since(7.5)] == [8.0, 9.0]
    assert history.since(9.0) == []
    assert history.ended(6.5)[LOCAL] == 3


def test_rates_are_by_route_and_errors_are_told_apart() -> None:
    assert rates({LOCAL: 6, FAILED: 2}, 2.0) == ({"local": 3.0, "none": 1.0}, 1.0)


def test_times_to_first_token_are_of_the_window_only() -> None:
    requests = RecentRequests(limit=3)
    assert requests.ttft(10.0) == TtftSeen(0)
    for at_s in (1.0, 50.0, 51.0, 52.0):
        requests.note_ttft(at_s / 100, at_s=at_s)
    assert requests.ttft(60.0, window_s=20.0) == TtftSeen(3, 0.51, 0.52, 0.52)
    assert requests.ttft(100.0, window_s=20.0).count == 0


@pytest.mark.parametrize(
    ("rule", "before", "state"),
    [
        (LinkRule(), 3.0, "open"),
        (LinkRule(threshold_factor=2.0), 2.0, "closing"),
        (LinkRule(threshold_factor=2.0), 3.0, "opening"),
        (LinkRule(threshold_factor=2.0, closed=True), 3.0, "closed"),
    ],
)
def test_a_links_state_tells_where_it_goes(rule: LinkRule, before: float, state: str) -> None:
    assert link_state(rule, before) == state


def test_the_factor_before_is_that_of_the_sample_before_the_last() -> None:
    assert filled(1, limit=4).factor_before("a") == 1.0
    assert filled(3, limit=4).factor_before("a") == 2.0
    assert filled(3, limit=4).factor_before("elsewhere") == 1.0


def test_a_nodes_worst_state_is_its_health() -> None:
    healthy = {"quarantined_s": 0.0, "draining": False, "share": 1.0}
    assert health_of(healthy) == "serving"
    assert health_of(healthy | {"draining": True, "share": 0.5}) == "draining"
    assert health_of(healthy | {"draining": True, "quarantined_s": 1.0}) == "quarantined"


def test_a_large_fleet_is_counted_and_not_listed_in_full() -> None:
    idle = {"quarantined_s": 0.0, "draining": False, "share": 1.0, "role": "prefill"}
    node = idle | {"in_flight": 1, "backlog_tokens": 10, "signals_age_s": None, "index_blocks": 0}
    nodes = [node | {"name": f"n{i}", "region": "a" if i % 2 else "b"} for i in range(2000)]
    own, other = regions(nodes, own="b", paces={"a": 5.0})
    assert own["is_own"]
    assert (own["name"], own["num_nodes"], own["backlog_tokens"]) == ("b", 1000, 10_000)
    assert len(own["nodes"]) + len(other["nodes"]) == MAX_NODES
    assert other["tokens_per_s"] == 5.0


def test_the_page_explains_every_reason() -> None:
    text, _ = page()
    explained = set(re.findall(r"^  ([a-z_]+): \"", text, re.MULTILINE))
    assert set(map(str, Reason)) - explained == set()
