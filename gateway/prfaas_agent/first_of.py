"""Wait for the first of several things."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(
    *waits: Coroutine[Any, Any, object], timeout_s: float | None = None
) -> int | None:
    """Run all waits; when one returns, cancel the others and return its position.

    Returns None after `timeout_s`. An error of a wait comes out in an `ExceptionGroup`.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return min((tasks.index(task) for task in done), default=None)
