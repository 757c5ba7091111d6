"""Run a drill: warm up, break things under load, mend, look whether all is as before, judge."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from prfaas.errors import PrfaasError, StateError
from prfaas_loadtest.drills.breakage import Breakage, Moment
from prfaas_loadtest.drills.client import Client
from prfaas_loadtest.drills.fault import LOAD_FAULTS, Fault, FaultKind
from prfaas_loadtest.drills.history import Outcome, Record
from prfaas_loadtest.drills.load import run_calm, run_load
from prfaas_loadtest.drills.plan import DrillPlan, probe
from prfaas_loadtest.drills.site import Site, Snapshot
from prfaas_loadtest.drills.verdict import SLACK_S, Evidence, Finding, judge

Say = Callable[[str], None]

_WARM_UP_S = 30.0
_LOOK_EVERY_S = 0.3
#: Clients wait longer than the deadline, so that one that is missed is seen as what it is.
_PATIENCE_SLACK_S = SLACK_S + 3.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of a drill came to."""

    plan: DrillPlan
    findings: tuple[Finding, ...]
    records: tuple[Record, ...]
    moments: tuple[Moment, ...]
    evidence: Evidence

    @property
    def passed(self) -> bool:
        """Whether every finding holds."""
        return all(finding.holds for finding in self.findings)


@dataclass(slots=True)
class _Conductor:
    """One run. Its clock begins with the load."""

    plan: DrillPlan
    site: Site
    client: Client
    say: Say
    began_s: float = 0.0
    records: list[Record] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    probes: int = 0
    ended_s: float = 0.0

    def note(self, text: str) -> None:
        """Put a moment on the timeline."""
        at_s = round(_now_s() - self.began_s, 3)
        self.moments.append(Moment(at_s, text))
        self.say(f"{at_s:+8.2f} s  {text}")

    async def probe(self, *, is_long: bool = True) -> Record:
        """Ask with a prompt that nobody has seen."""
        self.probes += 1
        load = self.plan.drill.load
        request = probe(self.probes, seed=self.plan.seed, load=load, is_long=is_long)
        now_s = _now_s()
        return await self.client.ask(request, began_s=now_s, sent_s=0.0)

    async def warm_up(self) -> tuple[str, Snapshot]:
        """Return the route of a long prompt and the state of the site when nothing is broken.

        Raises:
            StateError: the site is not well to begin with.
        """
        deadline_s, routes = _now_s() + _WARM_UP_S, ["", "?"]
        while routes[-1] != routes[-2]:
            problems = await asyncio.to_thread(self.site.problems)
            answer = await self.probe()
            if answer.outcome is Outcome.ANSWERED and not problems:
                routes.append(answer.route)
            elif _now_s() > deadline_s:
                why = "; ".join(problems) or answer.detail
                raise StateError(f"the site is not well before the drill: {why}")
            else:
                await asyncio.sleep(_LOOK_EVERY_S)
        # Both ways were gone once: whoever is to have lanes has some.
        await self.probe(is_long=False)
        return routes[-1], await self._calm_snapshot(deadline_s)

    async def _calm_snapshot(self, deadline_s: float) -> Snapshot:
        """Return the state once two looks in a row are the same."""
        last = await asyncio.to_thread(self.site.snapshot)
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = await asyncio.to_thread(self.site.snapshot)
            if not last.differences(now) and not now.differences(last):
                return now
            if _now_s() > deadline_s:
                raise StateError("the site does not come to rest before the drill")
            last = now

    async def recover(
        self, route: str, missing: Callable[[], list[str]]
    ) -> tuple[float | None, list[str]]:
        """Wait until all is as before; return when that was, or what it still lacks."""
        limit_s = self.plan.drill.expect.recovery_within_s
        deadline_s = _now_s() + limit_s + _LOOK_EVERY_S
        while True:
            # Who was killed a moment ago is still listed, and nobody has complained yet.
            problems = await asyncio.to_thread(missing)
            problems = problems or await asyncio.to_thread(self.site.problems)
            if not problems:
                answer = await self.probe()
                at_s = _now_s() - self.began_s
                if answer.outcome is Outcome.ANSWERED and answer.route == route:
                    self.note(f"as before: no problems, long prompts go {route}")
                    return at_s, []
                problems = [
                    f"a long prompt is {answer.outcome}, {answer.route} ({answer.reason})"
                    f" {answer.detail}".rstrip()
                ]
            if _now_s() > deadline_s:
                return None, problems
            await asyncio.sleep(_LOOK_EVERY_S)

    async def settle(self, before: Snapshot) -> Snapshot | None:
        """Return the state once it is as before, or what it is when the time is over."""
        deadline_s = _now_s() + self.plan.drill.expect.settle_within_s
        while True:
            try:
                now: Snapshot | None = await asyncio.to_thread(self.site.snapshot)
            except PrfaasError:
                now = None
            if (now is not None and not before.differences(now)) or _now_s() > deadline_s:
                return now
            await asyncio.sleep(_LOOK_EVERY_S)


async def run_drill(plan: DrillPlan, site: Site, *, say: Say) -> Run:
    """Run a drill on a site and return how it went; the site is mended in any case.

    Raises:
        StateError: the site is not well before, or a fault cannot be made here.
    """
    drill = plan.drill
    patience_s = drill.site.request_timeout_s + _PATIENCE_SLACK_S
    salt = uuid.uuid4().hex[:8]
    async with Client(
        site.url, patience_s=patience_s, salt=salt, headers=site.headers, tls=site.tls
    ) as client:
        conductor = _Conductor(plan, site, client, say, began_s=_now_s())
        route, before = await conductor.warm_up()
        counted = await asyncio.to_thread(site.requests_counted)
        conductor.began_s, conductor.probes = _now_s(), 0
        conductor.moments.clear()
        conductor.note(f"load begins: {len(plan.requests)} requests")
        recovered_s, troubles = await _broken(conductor, route)
        more = await asyncio.to_thread(site.requests_counted)
        conductor.note("the same requests again, undisturbed")
        right = await _undisturbed(conductor)
        after = await conductor.settle(before)
        conductor.note("at rest")
    evidence = Evidence(
        drill=drill,
        faults=plan.faults,
        planned=len(plan.requests),
        records=sorted(conductor.records, key=lambda record: record.number),
        right=right,
        before=before,
        after=after,
        recovered_s=recovered_s,
        troubles=troubles,
        ended_s=conductor.ended_s,
        counted=_more(counted, more, plan.faults, conductor.probes),
    )
    findings = tuple(judge(evidence))
    return Run(plan, findings, tuple(evidence.records), tuple(conductor.moments), evidence)


async def _broken(conductor: _Conductor, route: str) -> tuple[float | None, list[str]]:
    """Load the site and break it; return when it was as before, and what stayed broken."""
    plan, breakage = conductor.plan, Breakage(conductor.site, conductor.note)

    async def break_and_recover() -> tuple[float | None, list[str]]:
        await breakage.run(plan.faults, began_s=conductor.began_s)
        conductor.ended_s = _now_s() - conductor.began_s
        await asyncio.sleep(conductor.began_s + plan.last_fault_s - _now_s())
        return await conductor.recover(route, breakage.missing)

    load = run_load(conductor.client, plan.requests, conductor.records, began_s=conductor.began_s)
    troubles: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(load)
            group.create_task(_tell_of_clients(conductor))
            recovery = group.create_task(break_and_recover())
    except* PrfaasError as errors:
        raise _first(errors) from None
    finally:
        troubles = [f"not mended: {text}" for text in breakage.mend_all()]
    recovered_s, lacking = recovery.result()
    conductor.note("load ended")
    return recovered_s, [*lacking, *troubles]


async def _tell_of_clients(conductor: _Conductor) -> None:
    """Put on the timeline what the clients do: nothing of it is done to the site."""
    mine = [fault for fault in conductor.plan.drill.faults if fault.kind in LOAD_FAULTS]
    moments = [(fault.at_s, "begins", fault) for fault in mine]
    moments += [(fault.end_s, "ends", fault) for fault in mine]
    for at_s, what, fault in sorted(moments, key=lambda moment: moment[0]):
        await asyncio.sleep(conductor.began_s + at_s - _now_s())
        conductor.note(f"{what}: {fault.words}")


async def _undisturbed(conductor: _Conductor) -> dict[int, tuple[int, ...]]:
    """Return the tokens of an undisturbed run, for every request of which tokens came."""
    numbers = {record.number for record in conductor.records if record.tokens}
    again = [each for each in conductor.plan.requests if each.number in numbers]
    calm = await run_calm(conductor.client, again)
    return {r.number: r.tokens for r in calm if r.outcome is Outcome.ANSWERED}


def _more(
    before: float | None, after: float | None, faults: tuple[Fault, ...], probes: int
) -> float | None:
    """Return how many requests the gateway counted; nothing where it may have begun anew."""
    ends = (FaultKind.KILL, FaultKind.RESTART)
    if before is None or after is None or after < before:
        return None
    if any(fault.kind in ends and "gateway" in fault.target for fault in faults):
        return None
    return after - before - probes


def _first(errors: BaseExceptionGroup[PrfaasError]) -> PrfaasError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, PrfaasError)
    return found


def _now_s() -> float:
    return asyncio.get_running_loop().time()
