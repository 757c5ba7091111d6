"""A coroutine that runs beside the body of an `async with` block."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class Companion:
    """Runs one coroutine from start to stop.

    If the coroutine fails, the task that started it is cancelled and `stop` raises the error in
    an `ExceptionGroup`: a companion that died is never overlooked. Start and stop it in one task.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Start the coroutine; call once."""
        assert self._group is None
        self._group = await asyncio.TaskGroup().__aenter__()
        self._task = self._group.create_task(coroutine, name=name)

    async def stop(self, exc: BaseException | None, traceback: TracebackType | None) -> None:
        """Cancel the coroutine and wait for it; `exc` is what ended the body, if anything."""
        assert self._group is not None
        assert self._task is not None
        self._task.cancel()
        # The body's own error must leave the block as it is, not wrapped into a group.
        if isinstance(exc, asyncio.CancelledError):
            await self._group.__aexit__(type(exc), exc, traceback)
        else:
            await self._group.__aexit__(None, None, None)


class Accompanied(ABC):
    """Runs its `_run` beside the body of an `async with` block."""

    def __init__(self, name: str) -> None:
        self.__name = name
        self.__companion = Companion()

    @abstractmethod
    async def _run(self) -> None:
        """Work until cancelled."""

    async def __aenter__(self) -> Self:
        await self.__companion.start(self._run(), name=self.__name)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.__companion.stop(exc, traceback)
