"""The load of a drill: open-loop, each request at its time whatever became of those before."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from prfaas_loadtest.drills.client import Client
from prfaas_loadtest.drills.history import Record
from prfaas_loadtest.drills.plan import PlannedRequest

_CALM_AT_ONCE = 4


async def run_load(
    client: Client, requests: Sequence[PlannedRequest], records: list[Record], *, began_s: float
) -> None:
    """Send all requests at their times and return when the last has ended; fills in `records`."""

    async def send(request: PlannedRequest) -> None:
        records.append(await client.ask(request, began_s=began_s, sent_s=request.at_s))

    async with asyncio.TaskGroup() as group:
        for request in requests:
            await asyncio.sleep(began_s + request.at_s - _now_s())
            group.create_task(send(request))


async def run_calm(client: Client, requests: Sequence[PlannedRequest]) -> list[Record]:
    """Ask the same again, a few at a time, on a site where nothing is broken."""
    began_s, records = _now_s(), []
    places = asyncio.Semaphore(_CALM_AT_ONCE)

    async def send(request: PlannedRequest) -> None:
        async with places:
            patient = replace(request, abandon_after_s=0.0)
            sent_s = _now_s() - began_s
            records.append(await client.ask(patient, began_s=began_s, sent_s=sent_s))

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(send(request))
    return records


def _now_s() -> float:
    return asyncio.get_running_loop().time()
