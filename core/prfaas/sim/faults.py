"""What goes wrong when: begins and ends faults, which may overlap."""

from typing import Protocol

from prfaas.sim.events import Events
from prfaas.sim.scenario import Fault, FaultKind


class Faulty(Protocol):
    """What faults are done to."""

    def set_down(self, name: str, down: bool) -> None:
        """Kill a node, or bring it back empty."""

    def set_slowness(self, name: str, slowness: float) -> None:
        """Let a node take that many times longer."""

    def set_link(self, name: str, factor: float) -> None:
        """Let the link of a PrfaaS cluster have that many times its rate."""


class Faults:
    """Does faults to their target at their times.

    Of several that hold of one target at once the worst counts.
    """

    def __init__(self, faults: tuple[Fault, ...], events: Events, target: Faulty) -> None:
        self._target = target
        self._active: dict[tuple[FaultKind, str], list[float]] = {}
        for fault in faults:
            events.at(fault.at_s, self._begin, fault)
            if fault.until_s < float("inf"):
                events.at(fault.until_s, self._end, fault)

    def _begin(self, fault: Fault) -> None:
        values = self._active.setdefault((fault.kind, fault.target), [])
        values.append(fault.value)
        self._apply(fault, values)

    def _end(self, fault: Fault) -> None:
        values = self._active[fault.kind, fault.target]
        values.remove(fault.value)
        self._apply(fault, values)

    def _apply(self, fault: Fault, values: list[float]) -> None:
        if fault.kind is FaultKind.KILL:
            self._target.set_down(fault.target, bool(values))
        elif fault.kind is FaultKind.SLOW:
            self._target.set_slowness(fault.target, max(values, default=1.0))
        else:
            self._target.set_link(fault.target, min(values, default=1.0))
