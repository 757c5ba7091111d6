"""Several answers to one prompt: an attempt for each, since one room carries one answer.

The first attempt goes ahead, so that the others find the prompt cached where it was prefilled.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace

from prfaas.reasons import Reason
from prfaas_gateway.answer_merge import EventMerger, merge_answers
from prfaas_gateway.dispatch import Dispatcher, Job
from prfaas_gateway.errors import ServiceError
from prfaas_gateway.leg import Answer, StreamBroken

_QUEUE_PARTS = 4
"""How many parts of each stream wait for the client at most."""

_Part = tuple[int, bytes] | StreamBroken | None


def job_of(job: Job, index: int) -> Job:
    """Return what is to be dispatched for one of the answers: with a seed of its own, if any."""
    request = job.request
    if request.seed is not None:
        tail = json.dumps({"seed": request.seed + index}).encode()
        request = replace(request, body=request.body[:-1] + b"," + tail[1:])
    trace = replace(job.trace, attempts=0, decision=None) if index else job.trace
    return replace(job, request=request, trace=trace)


@asynccontextmanager
async def opened(dispatcher: Dispatcher, job: Job, first: Answer) -> AsyncIterator[list[Answer]]:
    """Give all answers of a job whose first has begun; the others are closed at the end.

    Raises:
        ServiceError: an attempt failed for good, or an engine refused a later answer.
    """
    jobs = [job_of(job, index) for index in range(1, job.request.num_answers)]
    tasks = [asyncio.ensure_future(dispatcher.open(each)) for each in jobs]
    with ExitStack() as resources:
        try:
            others = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for found in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(found, Answer):
                    resources.callback(found.close)
        for answer in others:
            if answer.status >= 400 or (answer.response is None) != (first.response is None):
                raise ServiceError(Reason.LOCAL_FAILED, "an engine gave only some of the answers")
        yield [first, *others]


def whole_of(answers: Sequence[Answer]) -> Answer:
    """Return whole answers as one.

    Raises:
        ServiceError: an engine's answer is none.
    """
    try:
        body = merge_answers([answer.first for answer in answers])
    except (ValueError, RecursionError) as error:
        raise ServiceError(Reason.LOCAL_FAILED, f"an engine's answer: {error}") from None
    return replace(answers[0], first=body)


async def merged_parts(answers: Sequence[Answer]) -> AsyncGenerator[bytes]:
    """Yield the events of all answers as they come, whole ones only, and one end.

    Raises:
        StreamBroken: one of them broke.
    """
    merger = EventMerger(len(answers))
    parts: asyncio.Queue[_Part] = asyncio.Queue(_QUEUE_PARTS * len(answers))
    tasks = [asyncio.ensure_future(_read(i, a, parts)) for i, a in enumerate(answers)]
    running = len(tasks)
    try:
        while running:
            part = await parts.get()
            if isinstance(part, StreamBroken):
                raise part
            if part is None:
                running -= 1
            elif events := merger.take(*part):
                yield events
        yield merger.end()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(index: int, answer: Answer, parts: "asyncio.Queue[_Part]") -> None:
    try:
        async for part in answer.parts():
            await parts.put((index, part))
        await parts.put(None)
    except StreamBroken as broken:
        await parts.put(broken)
