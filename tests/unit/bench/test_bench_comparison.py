"""From readings to rows, goals and the page: medians, ratios of one turn, the best peer."""

import doctest
import json
from pathlib import Path

import comparison
import pytest
from comparison import LANES, Reading, comparison_rows, percentile
from goals import GOALS, LINKS, Goal
from report import render
from rows import Rows

PEERS = ["slow peer", "fast peer"]
MACHINE = {
    "command": "make bench-transport",
    "cores": 2,
    "cpu": "a CPU",
    "kernel": "6.1",
    "python": "3.11",
    "iperf3": "iperf 3",
    "at": "today",
    "minutes": 1,
    "nice": 0,
}


def reading(gbits: float, *, cpu_s: float = 1.0, cold_s: float | None = None) -> Reading:
    """Return a run of one second."""
    return Reading(int(gbits * 1e9 / 8), 1.0, cpu_s, 2 * cpu_s, cold_s)


def values(readings: dict[str, list[Reading]]) -> dict[tuple[str, str], object]:
    rows = comparison_rows("veth", readings, PEERS)
    assert {row["case"] for row in rows} == {"veth"}
    return {(row["contender"], row["metric"]): row["value"] for row in rows}


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(comparison).failed == 0


def test_a_figure_is_the_median_of_the_repeats_with_its_spread() -> None:
    found = values({LANES: [reading(8), reading(2), reading(4)]})
    assert [found[LANES, f"goodput{end}"] for end in ("", "_min", "_max")] == [4, 2, 8]
    assert found[LANES, "send_cpu_per_gb"] == 2.0  # 1 s for half a GB
    assert found[LANES, "receive_cpu_per_gb"] == 4.0


def test_ratios_are_those_of_one_turn() -> None:
    """The machine was three times as slow in the second turn, for both."""
    turns = {LANES: [reading(9), reading(3)], "iperf3 -P 8": [reading(10), reading(10 / 3)]}
    found = values(turns)
    names = [f"goodput / iperf3 -P 8{end}" for end in ("", "_min", "_max")]
    assert [found[LANES, name] for name in names] == [0.9] * 3


def test_cpu_is_compared_with_the_fastest_peer_and_the_first_page_with_the_quickest() -> None:
    found = values(
        {
            LANES: [reading(4, cpu_s=1.0, cold_s=0.2)],
            "slow peer": [reading(1, cpu_s=0.01, cold_s=0.1)],
            "fast peer": [reading(2, cpu_s=1.0, cold_s=0.4)],
        }
    )
    assert found[LANES, "goodput / best peer"] == 2
    assert found[LANES, "send_cpu_per_gb / best peer"] == 0.5
    assert found[LANES, "goodput / slow peer"] == 4
    assert found[LANES, "receive_cpu_per_gb / slow peer"] == pytest.approx(25)
    assert found[LANES, "first 64 KB / best peer"] == 2
    assert found["fast peer", "best peer in goodput"] == 2
    assert found["slow peer", "best peer in first 64 KB"] == 100


def test_peers_that_are_missing_or_move_nothing_break_no_row() -> None:
    found = values({LANES: [reading(4)], "slow peer": [Reading(0, 1.0, 1.0, 1.0)], "x": []})
    assert found["slow peer", "goodput"] == 0
    assert found["slow peer", "send_cpu_per_gb"] == float("inf")
    assert found[LANES, "goodput / best peer"] == float("inf")
    assert not any(contender == "x" for contender, _ in found)
    assert (LANES, "goodput / best peer") not in values({LANES: [reading(4)]})


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], share) == expected


@pytest.mark.parametrize(
    ("value", "is_least", "expected"),
    [(1.0, True, True), (0.9, True, False), (1.0, False, True), (1.1, False, False), (None,) * 3],
)
def test_a_goal_is_met_missed_or_not_measured(
    value: float | None, is_least: bool | None, expected: bool | None
) -> None:
    goal = Goal("goodput", "veth", "goodput", 1.0, is_least=bool(is_least))
    table = {} if value is None else {("veth", LANES, "goodput"): value}
    assert goal.judge(table) is expected


def test_the_page_has_every_goal_and_says_which_are_missed() -> None:
    rows = comparison_rows(
        "10 Gbit/s",
        {LANES: [reading(4), reading(6)], "iperf3 -P 8": [reading(10), reading(10)]},
        PEERS,
    )
    page = render(MACHINE, rows, GOALS)
    assert "| 10 Gbit/s | at least 0.95 | 0.5 (0.4 to 0.6) | **not met** |" in page
    assert page.count("not measured") == len(GOALS) - 1
    assert "| 10 Gbit/s | lanes | 5.0 (4.0 to 6.0) | 0.5 (0.4 to 0.6) |" in page


def test_goals_name_cases_that_the_benchmark_runs() -> None:
    from run import CASES

    assert {goal.case for goal in GOALS} <= CASES.keys()
    assert set(LINKS) <= CASES.keys()


def test_a_run_of_one_case_keeps_the_rows_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "rows.json"
    first = Rows(file)
    for case in ("veth", "submit"):
        first.begin(case)
        first.add(case, LANES, "goodput", 1.0, "Gbit/s")
    first.save()
    second = Rows(file, keep=True)
    second.begin("submit")
    second.failed("submit", LANES, ValueError("no"))
    second.save()
    rows = json.loads(file.read_text())["rows"]
    assert [(r["case"], r["metric"]) for r in rows] == [("veth", "goodput"), ("submit", "failed")]
    assert second.num_failed == 1
    assert not Rows(file).all
