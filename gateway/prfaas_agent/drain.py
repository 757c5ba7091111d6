"""Take a node out of routing, so that it can be stopped without loss, and offer it again.

A drain ends with the agent: a node that starts is offered.
"""

import asyncio
import time
from dataclasses import dataclass, replace

from prfaas.errors import StateError
from prfaas.role_change import drain_problem
from prfaas_agent.engine_http import EngineHttp
from prfaas_agent.role_switch import GRACE_S, Serving

_LOOK_S = 0.2
#: A leg between two queues of an engine is in neither for a moment.
_IDLE_LOOKS = 2


@dataclass(frozen=True, slots=True)
class Drained:
    """What became of a node; `drained_s` is how long its requests took to end."""

    name: str
    draining: bool
    changed: bool
    drained_s: float = 0.0


async def drain(
    serving: Serving, http: EngineHttp, *, was_draining: bool, force: bool, timeout_s: float
) -> Drained:
    """Offer the node to nobody, and wait until its engine has no request.

    Raises:
        StateError: requests could not be served without it, or it is still busy; it is offered
            again, if it was before.
    """
    record = serving.record
    await _require_others(serving, force=force)
    began_s = time.monotonic()
    try:
        await serving.registered.publish(replace(record, draining=True))
        # Of two that drain at once, each sees the other now.
        await _require_others(serving, force=force)
        await asyncio.sleep(GRACE_S)
        await _wait_idle(record.name, http, began_s + timeout_s)
    except StateError:
        if not was_draining:
            await serving.registered.publish(record)
        raise
    drained_s = round(time.monotonic() - began_s, 3)
    return Drained(record.name, draining=True, changed=not was_draining, drained_s=drained_s)


async def undrain(serving: Serving, *, was_draining: bool) -> Drained:
    """Offer the node again. Raises: StateError: nobody can see that yet."""
    await serving.registered.publish(serving.record)
    return Drained(serving.record.name, draining=False, changed=was_draining)


async def _require_others(serving: Serving, *, force: bool) -> None:
    if force:
        return
    problem = drain_problem(serving.record, await serving.registered.nodes())
    if problem:
        raise StateError(f"{problem}; start another one first, or give --force")


async def _wait_idle(name: str, http: EngineHttp, deadline_s: float) -> None:
    idle_looks = 0
    while True:
        is_idle = await http.is_idle()
        idle_looks = idle_looks + 1 if is_idle else 0
        if idle_looks >= _IDLE_LOOKS:
            return
        if time.monotonic() >= deadline_s:
            why = "its engine does not tell its load" if is_idle is None else "it is still busy"
            raise StateError(f"{name} is not drained: {why}; give it more --timeout")
        await asyncio.sleep(_LOOK_S)
