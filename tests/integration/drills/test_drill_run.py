"""A drill from its load to its verdict, on a site that is a few lines of this test."""

import asyncio

import pytest
from drill_world import FakeSite, fake_site

from prfaas.errors import StateError
from prfaas_loadtest.drills import Drill, Run, make_plan, run_drill
from prfaas_loadtest.drills.fault import Fault, FaultKind
from prfaas_loadtest.drills.report import page
from prfaas_loadtest.drills.spec import Expectations, Load, SiteSpec

LOAD = Load(seconds=0.6, requests_per_s=60.0, short_tokens=50, long_tokens=1000, output_tokens=4)
QUICK = Expectations(recovery_within_s=2.0, settle_within_s=0.5)
CUT = Fault(FaultKind.PARTITION, 0.1, 0.3)
HANG = Fault(FaultKind.HANG, 0.1, 0.3, target="b-decode-0")


def drill(*faults: Fault, expect: Expectations = QUICK) -> Drill:
    site = SiteSpec(request_timeout_s=5.0)
    return Drill("d", "Something breaks.", site, LOAD, faults, expect)


async def run(site: FakeSite, *faults: Fault, expect: Expectations = QUICK) -> Run:
    plan = make_plan(drill(*faults, expect=expect), seed=3, targets=site.processes)
    return await run_drill(plan, site, say=lambda _: None)


def broken(found: Run) -> set[str]:
    return {finding.name for finding in found.findings if not finding.holds}


async def test_a_good_site_passes_and_the_report_tells_of_it() -> None:
    async with fake_site() as site:
        found = await run(site, CUT, Fault(FaultKind.STOP, 0.1, 0.2, target="a-prefill-0"))
    assert broken(found) == set()
    assert {record.route for record in found.records} == {"local", "offload"}
    assert {record.is_stream for record in found.records} == {True, False}
    assert site.acts[0] in {"link 1 1", "signal 19 a-prefill-0"}
    assert {"link 0 0", "resume a-prefill-0, life 1"} <= set(site.acts)
    text = page(found)
    assert "Drill d: passed" in text
    assert "begins: partition of the link" in text
    assert "<svg" in text
    assert "http" not in text.replace("http://www.w3.org", "")


async def test_a_wrong_token_fails_the_drill() -> None:
    async with fake_site(wrong_from=20) as site:
        found = await run(site, CUT)
    assert {"tokens equal", "answered right"} <= broken(found)
    assert "Drill d: FAILED" in page(found)


async def test_what_stays_taken_fails_the_drill() -> None:
    async with fake_site() as site:
        plan = make_plan(drill(CUT), seed=3, targets=site.processes)

        def leak(text: str) -> None:
            site.leaks = 1.0 if "begins" in text else site.leaks

        found = await run_drill(plan, site, say=leak)
    assert broken(found) == {"baseline"}


async def test_all_that_was_broken_is_mended_when_a_fault_cannot_be_made() -> None:
    async with fake_site(refuses="it cannot hang") as site:
        with pytest.raises(StateError, match="it cannot hang"):
            await run(site, Fault(FaultKind.FILL_DISK, 0.0, 0.5), HANG, CUT)
    assert site.acts[-1] != "fill"
    assert {"free", "link 0 0", 'inject b-decode-0 {"stall_s": 0}'} <= set(site.acts)


async def test_all_that_was_broken_is_mended_when_the_drill_is_interrupted() -> None:
    async with fake_site() as site:
        task = asyncio.create_task(run(site, Fault(FaultKind.FILL_DISK, 0.0, 0.6), CUT, HANG))
        while len(site.acts) < 3:  # noqa: ASYNC110 - short
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert {"free", "link 0 0", 'inject b-decode-0 {"stall_s": 0}'} <= set(site.acts[-3:])


async def test_a_fault_that_is_not_possible_says_so() -> None:
    async with fake_site() as site:
        step = Fault(FaultKind.CLOCK_STEP, 0.0, 0.2, value=60.0, target="b-gateway-0")
        with pytest.raises(StateError, match="no clock of its own"):
            await run(site, step)


async def test_clients_that_hang_up_are_known_from_those_that_wait_in_vain() -> None:
    async with fake_site() as site:
        stop = Fault(FaultKind.STOP, 0.0, 0.55, target="b-decode-0")
        abandon = Fault(FaultKind.ABANDON, 0.0, 0.4, value=0.5)
        found = await run(site, stop, abandon)
    outcomes = {str(record.outcome) for record in found.records}
    assert outcomes == {"answered", "abandoned"}
    assert "ends: abandon (share 0.5)" in {moment.text for moment in found.moments}
    assert broken(found) == set()


async def test_what_is_no_twin_is_slowed_down_by_stopping_it_again_and_again() -> None:
    async with fake_site() as site:
        slow = Fault(FaultKind.SLOW, 0.0, 0.5, value=2.0, target="b-gateway-0")
        found = await run(site, slow)
    assert site.acts.count("pause b-gateway-0, life 1") >= 2
    assert site.acts[-1] == "resume b-gateway-0, life 1"
    assert broken(found) == set()


async def test_who_was_killed_must_be_back_before_all_is_as_before() -> None:
    """A site that has not noticed yet complains of nothing, and answers."""
    kill = Fault(FaultKind.KILL, 0.2, target="a-prefill-0")
    async with fake_site() as site:
        assert broken(await run(site, kill)) == set()
    async with fake_site(stay_dead=("a-prefill-0",)) as site:
        found = await run(site, kill)
    assert broken(found) == {"recovery"}
    assert found.evidence.troubles == ["a-prefill-0 is not back"]
