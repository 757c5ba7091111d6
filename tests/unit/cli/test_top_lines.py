from typing import Any

import pytest

from prfaas_cli.top_lines import lines, link_line

LINK: dict[str, Any] = {
    "from": "a",
    "to": "b",
    "state": "closing",
    "mode": "scarce",
    "up": True,
    "delivery_bytes_per_s": 6e8,
    "available_bytes_per_s": 1.25e9,
    "rtt_s": 0.02,
    "loss": 0.012,
    "backlog_bytes": 1 << 20,
    "backlog_s": 0.25,
    "is_stale": False,
    "age_s": 0.1,
    "threshold_tokens": 200,
}
VIEW: dict[str, Any] = {
    "at_s": 0.0,
    "deployment": "d",
    "gateway": "g",
    "region": "b",
    "in_flight": 3,
    "etcd": {"stale": False},
    "missing": [],
    "threshold_tokens": 100,
    "links": [LINK],
    "plan": {
        "version": 7,
        "pinned": True,
        "leader": "g2",
        "is_leader": False,
        "bottleneck": "link",
    },
    "requests": {"per_s": {"local": 1.0, "offload": 3.0}, "errors_per_s": 0.5, "ended": []},
    "ttft": {"p50_s": 0.0042, "p99_s": 2.5},
    "regions": [],
    "decisions": [],
}


def test_the_first_lines_say_the_most() -> None:
    shown = list(lines(VIEW))
    assert shown[0].endswith("live")
    assert shown[1].startswith("requests: 4.00/s, 75% offloaded, 0.50/s failed, 3 being served")
    assert "4.2ms (median), 2.5 s (99%)" in shown[1]
    assert (
        shown[2]
        == "threshold: 100 tokens; plan: version 7, pinned; leader: g2; fullest stage: link"
    )
    assert len(shown) == 4


def test_a_link_is_one_line() -> None:
    assert link_line(LINK) == (
        "closing; 4.8gbit of 10gbit, rtt 20ms, 1.2% sent again, backlog 1.0 MiB 250ms; scarce;"
        " offloads above 200 tokens"
    )
    closed = LINK | {"state": "closed", "up": False, "threshold_tokens": None}
    assert link_line(closed).startswith("closed, DOWN;")
    assert link_line(closed).endswith("offloads above no length")
    assert "STALE for 3.0 s" in link_line(LINK | {"is_stale": True, "age_s": 3.0})


@pytest.mark.parametrize(
    ("change", "problem", "said"),
    [
        ({}, "nobody there", "STALE: nobody there"),
        ({"etcd": {"stale": True}}, "", "STALE: etcd does not answer"),
        ({"missing": ["no prefill node"]}, "", "NOT READY: no prefill node"),
    ],
)
def test_what_is_old_or_lacking_stands_in_the_first_line(
    change: dict[str, Any], problem: str, said: str
) -> None:
    assert said in next(lines(VIEW | change, problem))


def test_names_cannot_move_the_cursor() -> None:
    hostile = VIEW | {"gateway": "g\x1b[2J\n"}
    assert all(line.isprintable() for line in lines(hostile))
