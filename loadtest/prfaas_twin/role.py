"""What the two roles of a twin have in common: requests in progress, each with a task."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from prfaas.errors import TransferError
from prfaas_twin.generation import Finish, Generation

logger = logging.getLogger(__name__)

INTERNAL_ERROR = 500


class KvTransferError(Exception):
    """A room failed. `stage` is how far the request was, in SGLang's words."""

    def __init__(self, stage: str, cause: str) -> None:
        super().__init__(cause)
        self.stage = stage


class Role(ABC):
    """Serves requests; each is a task that ends whatever it began when it is cancelled."""

    #: How SGLang calls the failure of a request that has just come.
    first_stage: str

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stages: dict[Generation, str] = {}
        self._running: dict[Generation, None] = {}

    @property
    def requests(self) -> int:
        """How many requests are here."""
        return len(self._running)

    def start(self, generation: Generation) -> None:
        """Serve a request: its generation ends, whatever happens."""
        self._running[generation] = None
        generation.task = self._loop.create_task(self._run(generation))

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """Abort the requests whose id begins so, as SGLang does, or all of them."""
        for generation in list(self._running):
            if everything or (rid and generation.ask.rid.startswith(rid)):
                self.drop(generation, "Aborted by AbortReq.")

    def drop(self, generation: Generation, message: str) -> None:
        """Abort one request; what it held is free when its task has ended."""
        if generation.task is not None and not generation.task.done():
            generation.abort_message = message
            generation.task.cancel()

    async def idle(self) -> None:
        """Return when no request is here."""
        while tasks := [each.task for each in self._running if each.task]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """End all requests."""
        for generation in list(self._running):
            self.drop(generation, "The server is going away.")
        tasks = [generation.task for generation in self._running if generation.task]
        await asyncio.gather(*tasks, return_exceptions=True)

    @abstractmethod
    async def _serve(self, generation: Generation) -> None:
        """Serve one request to its end. Raises: KvTransferError.

        Keeps in `_stages` how SGLang calls it when the request is aborted now; empty: an answer
        that ends early, and no failure.
        """

    @abstractmethod
    def _named(self, generation: Generation) -> str:
        """Return how SGLang's error messages name the request."""

    async def _run(self, generation: Generation) -> None:
        try:
            await self._serve(generation)
        except asyncio.CancelledError:
            stage = self._stages.get(generation, self.first_stage)
            if stage:
                self._fail(generation, stage, generation.abort_message)
            else:
                generation.end(Finish("abort", message="Aborted"))
        except KvTransferError as error:
            self._fail(generation, error.stage, str(error))
        except Exception as error:
            # The outermost frame of a request: a bug in one must not end the twin.
            logger.exception("request %s", generation.ask.rid)
            generation.end(Finish("abort", message=repr(error), status=INTERNAL_ERROR))
        finally:
            self._stages.pop(generation, None)
            self._running.pop(generation, None)

    def _fail(self, generation: Generation, stage: str, cause: str) -> None:
        room = generation.ask.room
        message = (
            f"{stage} for request rank=0 {self._named(generation)} with exception "
            f"KVTransferError(bootstrap_room={room}): {cause}"
        )
        logger.warning("%s", message)
        generation.end(Finish("abort", message=message, status=INTERNAL_ERROR))

    def _from_thread(self, take: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a callback for a transport's thread that has the loop take its events."""

        def post(event: object) -> None:
            # A loop that is closed has nobody left to tell.
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(take, event)

        return post


def text_of(error: TransferError) -> str:
    """Return how the plugin words a failed room."""
    return f"{error.reason}: {error.detail}"
