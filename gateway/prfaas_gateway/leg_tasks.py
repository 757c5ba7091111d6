"""The tasks that legs run in."""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

_T = TypeVar("_T")


class LegTasks:
    """Starts tasks that may outlast the request that needed them, but not the gateway.

    Leaving the context cancels what still runs and waits for it.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._running:
            task.cancel()
        # The body's own error must leave the block as it is, not wrapped into a group.
        if isinstance(exc, asyncio.CancelledError):
            await self._group.__aexit__(exc_type, exc, traceback)
        else:
            await self._group.__aexit__(None, None, None)

    def start(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task."""
        task = self._group.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
