"""Break a site as planned, and mend whatever was broken, whatever happens meanwhile."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prfaas.errors import PrfaasError, StateError
from prfaas_loadtest.drills.fault import LINK_FAULTS, SUDDEN, Fault, FaultKind
from prfaas_loadtest.drills.link_faults import link_with
from prfaas_loadtest.drills.site import Json, Site
from prfaas_loadtest.drills.uninterrupted import uninterrupted

_T = TypeVar("_T")

_ACT_TIMEOUT_S = 60.0
#: Longer than any drill: what is to end by being ended, not by itself.
_FOREVER_S = 3600.0
_STRANGERS = 200
#: Of a process that is slowed down by being stopped again and again.
_PERIOD_S = 0.2


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, in seconds after the load's begin."""

    at_s: float
    text: str


@dataclass(slots=True)
class Breakage:
    """Begins and ends faults. The single writer of `moments` while faults run.

    `mends` hold what undoes each fault that holds now, by fault; done in any case by `mend_all`.
    `ended` are the processes that were ended, by name, as they were.
    """

    site: Site
    note: Callable[[str], None]
    mends: dict[Fault, Callable[[], None]] = field(default_factory=dict)
    ended: dict[str, Any] = field(default_factory=dict)
    _link: Json = field(default_factory=dict)

    async def run(self, faults: tuple[Fault, ...], *, began_s: float) -> None:
        """Do all faults at their times; return when the last is over.

        Raises:
            StateError: one cannot be done here.
        """
        self._link = await _act(self.site.link)
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._one(fault, began_s))

    def missing(self) -> list[str]:
        """Return which of the ended processes have not come back, in words. Blocks."""
        return [
            f"{target} is not back"
            for target, old in self.ended.items()
            if self.site.process(target) in (None, old)
        ]

    def mend_all(self) -> list[str]:
        """Undo what still holds; return what could not be undone, in words.

        Blocks, and neither a cancellation nor a signal gets in between.
        """
        failed = []
        with uninterrupted():
            while self.mends:
                fault, mend = self.mends.popitem()
                try:
                    mend()
                    self.note(f"mended: {fault.words}")
                except (PrfaasError, OSError) as error:
                    failed.append(f"{fault.words}: {error}")
        return failed

    async def _one(self, fault: Fault, began_s: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(began_s + fault.at_s - loop.time())
        self.note(f"begins: {fault.words}")
        await self._begin(fault)
        if fault.kind in SUDDEN:
            return
        if fault.kind is FaultKind.SLOW and fault.target not in self.site.twins:
            await self._throttle(fault, began_s + fault.end_s)
        await asyncio.sleep(began_s + fault.end_s - loop.time())
        mend = self.mends.pop(fault, None)
        if mend is not None:
            try:
                await _act(mend)
            except BaseException:
                # Not undone, or not known to be: `mend_all` tries once more.
                self.mends[fault] = mend
                raise
        self.note(f"ends: {fault.words}")

    async def _begin(self, fault: Fault) -> None:
        """Note how to undo it, then do it: a fault that fails half-way is undone, too."""
        site, target = self.site, fault.target
        if fault.kind in LINK_FAULTS:
            self.mends[fault] = self._set_link
            await _act(self._set_link)
            return
        match fault.kind:
            case FaultKind.KILL:
                await self._end(target, signal.SIGKILL)
            case FaultKind.RESTART:
                await self._end(target, signal.SIGTERM)
            case FaultKind.STOP:
                process = await _act(lambda: site.process(target))
                self.mends[fault] = lambda: site.resume(process)
                await self._signal(target, signal.SIGSTOP)
            case FaultKind.SLOW if target not in site.twins:
                process = await _act(lambda: site.process(target))
                self.mends[fault] = lambda: site.resume(process)
            case FaultKind.SLOW:
                self.mends[fault] = lambda: site.inject(target, {"slowness": 1})
                await _act(lambda: site.inject(target, {"slowness": fault.value}))
            case FaultKind.HANG:
                self.mends[fault] = lambda: site.inject(target, {"stall_s": 0})
                await _act(lambda: site.inject(target, {"stall_s": _FOREVER_S}))
            case FaultKind.FILL_DISK:
                self.mends[fault] = site.free_disk
                await _act(site.fill_disk)
            case FaultKind.CLOCK_STEP:
                self.mends[fault] = lambda: site.step_clock(target, 0.0)
                await _act(lambda: site.step_clock(target, fault.value))
            case FaultKind.SWITCH_ROLE:
                await _act(lambda: site.change_role(target))
            case FaultKind.STRANGERS:
                await self._pester(fault)
            case _:
                raise StateError(f"{fault.kind}: no fault of a site")

    async def _throttle(self, fault: Fault, end_s: float) -> None:
        """Let a process run for a part of each period only, so that all it does takes longer."""
        process = await _act(lambda: self.site.process(fault.target))
        loop = asyncio.get_running_loop()
        while loop.time() < end_s:
            await _act(lambda: self.site.pause(process))
            await asyncio.sleep(_PERIOD_S * (1 - 1 / fault.value))
            await _act(lambda: self.site.resume(process))
            await asyncio.sleep(_PERIOD_S / fault.value)

    def _set_link(self) -> None:
        """Set the link as the faults want it that hold now."""
        now = [fault for fault in self.mends if fault.kind in LINK_FAULTS]
        self.site.set_link(link_with(self._link, now))

    async def _end(self, target: str, number: signal.Signals) -> None:
        self.ended[target] = await _act(lambda: self.site.process(target))
        await self._signal(target, number)

    async def _signal(self, target: str, number: signal.Signals) -> None:
        if not await _act(lambda: self.site.signal(target, number)):
            raise StateError(f"{target} does not run: nothing to send {number.name} to")

    async def _pester(self, fault: Fault) -> None:
        """Strangers come, as many as a node must turn away, and talk nonsense."""
        took = await _act(lambda: self.site.pester(fault.target, 1, _STRANGERS))
        self.note(f"{took} connections of strangers to {fault.target} had their end")


async def _act(function: Callable[[], _T]) -> _T:
    """Run what blocks in a thread, with a limit.

    Who is cancelled meanwhile waits for its end: what is half done must not go on behind the back
    of what undoes it.
    """
    acting = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        async with asyncio.timeout(_ACT_TIMEOUT_S):
            return await asyncio.shield(acting)
    except asyncio.CancelledError:
        await asyncio.wait({acting}, timeout=_ACT_TIMEOUT_S)
        raise
