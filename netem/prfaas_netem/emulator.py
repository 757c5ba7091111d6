"""A running link: answers requests, and changes its ways as their schedules say."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prfaas.errors import ConfigError
from prfaas_netem.backend import Backend
from prfaas_netem.link_spec import LinkSpec
from prfaas_netem.schedule import Schedule
from prfaas_netem.topology import Topology
from prfaas_netem.ways import Direction


@dataclass(slots=True)
class _WayNow:
    """What a direction is like, and what it follows; `base` is how it was described."""

    spec: LinkSpec
    base: LinkSpec
    schedule: Schedule | None


class Emulator:
    """Answers control requests for a running backend. Used by one thread."""

    def __init__(
        self,
        topology: Topology,
        backend: Backend,
        *,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topology = topology
        self._backend = backend
        self._seed = seed
        self._clock = clock
        self._started_at = clock()
        self._ways: dict[Direction, _WayNow] = {}
        for direction in topology.directions():
            way = topology.way(direction.source, direction.target)
            self._ways[direction] = _WayNow(way.spec, way.spec, way.schedule)

    def follow(self) -> float | None:
        """Apply what schedules say for now; return the seconds until the next change, if any."""
        elapsed_s = self._elapsed_s()
        waits = []
        for direction, now in self._ways.items():
            if now.schedule is None:
                continue
            wanted = now.schedule.spec_at(elapsed_s, now.base)
            if wanted != now.spec:
                self._backend.apply(direction, wanted)
                now.spec = wanted
            next_s = now.schedule.next_change_s(elapsed_s)
            if next_s is not None:
                waits.append(next_s - elapsed_s)
        return min(waits) if waits else None

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request.

        Raises: ConfigError when it is not allowed; nothing is changed then.
        """
        operation = request.get("op")
        if operation == "set":
            self._set(request)
        elif operation != "show":
            raise ConfigError(f"request: op = {operation!r}; allowed: show, set")
        return self.show()

    def show(self) -> dict[str, Any]:
        """Return the answer to `show`: see `prfaas_netem.client.show`."""
        elapsed_s = self._elapsed_s()
        directions = [
            {
                "from": direction.source,
                "to": direction.target,
                "spec": now.spec.to_json(),
                "schedule": _schedule_json(now.schedule, elapsed_s),
                **self._backend.report(direction),
            }
            for direction, now in self._ways.items()
        ]
        modes = {direction["mode"] for direction in directions}
        return {
            "deployment": self._topology.deployment,
            "backend": self._backend.name,
            "mode": modes.pop() if len(modes) == 1 else "mixed",
            "pid": os.getpid(),
            "seed": self._seed,
            "uptime_s": round(elapsed_s, 3),
            "directions": directions,
        }

    def _set(self, request: dict[str, Any]) -> None:
        changes = request.get("link")
        if not isinstance(changes, dict):
            raise ConfigError("request: link must be an object of link fields")
        chosen = self._chosen(request.get("from"), request.get("to"))
        wanted = {direction: self._ways[direction].spec.merged(changes) for direction in chosen}
        for direction, spec in wanted.items():
            self._backend.apply(direction, spec)
            # Who changes a way by hand does not want it changed back a moment later.
            self._ways[direction] = _WayNow(spec, spec, None)

    def _chosen(self, source: object, target: object) -> list[Direction]:
        for name in (source, target):
            if name is not None and name not in self._topology.regions:
                allowed = ", ".join(self._topology.regions)
                raise ConfigError(f"request: no region {name!r}; allowed: {allowed}")
        chosen = [
            direction
            for direction in self._ways
            if source in (None, direction.source) and target in (None, direction.target)
        ]
        if not chosen:
            raise ConfigError("request: from and to are the same region")
        return chosen

    def _elapsed_s(self) -> float:
        return self._clock() - self._started_at


def _schedule_json(schedule: Schedule | None, elapsed_s: float) -> dict[str, Any] | None:
    if schedule is None:
        return None
    next_s = schedule.next_change_s(elapsed_s)
    return {
        "steps": len(schedule.steps),
        "period_s": schedule.period_s,
        "next_change_in_s": None if next_s is None else round(next_s - elapsed_s, 3),
    }
