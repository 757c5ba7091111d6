"""Validators: each says no to what it is there for, and to nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from prfaas_loadtest.drills.fault import Fault, FaultKind
from prfaas_loadtest.drills.history import Outcome, Record, parse_lines, to_lines
from prfaas_loadtest.drills.site import Snapshot
from prfaas_loadtest.drills.spec import Drill, Expectations, Load, SiteSpec
from prfaas_loadtest.drills.verdict import Evidence, fallback_times_s, judge

RIGHT = (1, 2, 3)
BEFORE = Snapshot(
    {"d rooms_open": 0.0}, frozenset({"p > d"}), frozenset({"p", "d"}), 2, {"p (7)": 20, "g (8)": 9}
)
DRILL = Drill(
    "d",
    "about",
    SiteSpec(request_timeout_s=10.0),
    Load(seconds=10.0, requests_per_s=1.0),
    (Fault(FaultKind.PARTITION, 2.0, 3.0),),
    Expectations(sees=frozenset({"fallback"}), fallback_within_s=3.0, recovery_within_s=5.0),
)


def record(number: int, **changes: object) -> Record:
    at_s = float(number)
    made = Record(number, at_s, at_s + 1, Outcome.ANSWERED, True, False, 100, 3)
    made = replace(made, status=200, route="fallback", tokens=RIGHT, ends=1)
    return replace(made, **changes)  # type: ignore[arg-type]


def evidence(*records: Record, **changes: object) -> Evidence:
    made = Evidence(
        drill=DRILL,
        faults=DRILL.faults,
        planned=len(records),
        records=records,
        right={one.number: RIGHT for one in records},
        before=BEFORE,
        after=BEFORE,
        recovered_s=6.0,
        counted=float(len(records)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


GOOD = [record(number) for number in range(6)]


def broken(found: Evidence) -> set[str]:
    return {finding.name for finding in judge(found) if not finding.holds}


def test_a_good_history_is_good() -> None:
    assert broken(evidence(*GOOD)) == set()


CUT, REFUSED, FAILED = Outcome.CUT, Outcome.REFUSED, Outcome.FAILED


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"outcome": Outcome.SILENT, "tokens": ()}, {"answered or failed"}),
        ({"end_s": 17.5}, {"within the deadline"}),
        ({"tokens": (1, 2, 4)}, {"tokens equal"}),
        ({"tokens": (1, 2)}, {"tokens equal"}),
        ({"ends": 2}, {"none twice"}),
        ({"number": 0}, {"none twice"}),
        ({"outcome": CUT, "tokens": (1, 2)}, {"connections kept"}),
        ({"outcome": CUT, "tokens": (2,)}, {"connections kept", "tokens equal"}),
        ({"outcome": REFUSED, "tokens": ()}, {"connections kept", "none twice"}),
        ({"outcome": FAILED, "tokens": (), "reason": "decode_lost"}, {"failures named"}),
    ],
)
def test_one_bad_request_is_found(changes: dict[str, object], found: set[str]) -> None:
    bad = replace(record(5), **changes)  # type: ignore[arg-type]
    is_right = bad.outcome is Outcome.ANSWERED and bad.tokens == RIGHT
    assert broken(evidence(*GOOD[:5], bad)) == found | (set() if is_right else {"answered right"})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda e: replace(e, planned=7), {"answered or failed"}),
        (lambda e: replace(e, counted=7.0), {"none twice"}),
        (lambda e: replace(e, recovered_s=None), {"recovery"}),
        (lambda e: replace(e, recovered_s=10.5), {"recovery"}),
        (lambda e: replace(e, after=None), {"baseline"}),
        (lambda e: replace(e, after=replace(BEFORE, leases=3)), {"baseline"}),
        (lambda e: replace(e, after=replace(BEFORE, pairs=frozenset())), {"baseline"}),
        (lambda e: replace(e, after=replace(BEFORE, nodes=frozenset({"p"}))), {"baseline"}),
        (lambda e: replace(e, after=replace(BEFORE, values={"d rooms_open": 1.0})), {"baseline"}),
        (lambda e: replace(e, after=replace(BEFORE, descriptors={"p (7)": 84})), set()),
        (lambda e: replace(e, after=replace(BEFORE, descriptors={"p (7)": 85})), {"baseline"}),
        (lambda e: replace(e, right={}), {"tokens equal", "answered right", "fallback"}),
    ],
)
def test_what_stays_broken_is_found(
    change: Callable[[Evidence], Evidence], found: set[str]
) -> None:
    assert broken(change(evidence(*GOOD))) == found


def test_a_drill_that_showed_nothing_is_no_success() -> None:
    local = [replace(one, route="local") for one in GOOD]
    assert broken(evidence(*local)) == {"sees fallback"}
    assert "tokens equal" in broken(evidence())


def test_named_failures_are_allowed_up_to_the_share_that_is() -> None:
    expect = replace(DRILL.expect, reasons=frozenset({"decode_lost"}), right_share=0.8)
    drill = replace(DRILL, expect=expect)
    lost = record(5, outcome=Outcome.FAILED, tokens=(1,), reason="decode_lost")
    assert broken(evidence(*GOOD[:5], lost, drill=drill)) == set()
    strict = replace(drill, expect=replace(expect, right_share=0.9))
    assert broken(evidence(*GOOD[:5], lost, drill=strict)) == {"answered right"}


def test_the_fallback_is_timed_from_the_fault_to_the_first_right_answer_since() -> None:
    slow = [replace(one, end_s=one.sent_s + (4.5 if one.sent_s < 4 else 1.0)) for one in GOOD]
    assert fallback_times_s(evidence(*slow)) == [3.0]
    assert broken(evidence(*slow)) == set()
    slower = [replace(one, end_s=one.end_s + 0.5) for one in slow]
    assert broken(evidence(*slower)) == {"fallback"}
    short = [replace(one, is_long=False) for one in GOOD]
    assert fallback_times_s(evidence(*short)) == []
    assert broken(evidence(*short)) == {"fallback"}


def test_who_hung_up_is_owed_no_answer() -> None:
    gone = record(5, outcome=Outcome.ABANDONED, tokens=(1,), ends=0)
    assert broken(evidence(*GOOD[:5], gone)) == set()


def test_a_history_is_read_as_it_was_written() -> None:
    assert parse_lines(to_lines(GOOD), source="h") == GOOD
