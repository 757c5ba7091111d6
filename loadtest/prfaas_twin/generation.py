"""One request on its way through a twin."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from prfaas_twin.ask import Ask
from prfaas_twin.kv_content import token_at
from prfaas_twin.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended; `type` "length" with a limit, or "abort" with a message and status."""

    type: str
    length: int = 0
    message: str = ""
    status: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return SGLang's `finish_reason`."""
        if self.type == "length":
            return {"type": "length", "length": self.length}
        return {
            "type": "abort",
            "message": self.message,
            "status_code": self.status,
            "err_type": None,
        }


class Generation:
    """A request's output so far. One writer: the role that serves it; one reader: its handler."""

    def __init__(self, ask: Ask, vocabulary: Vocabulary) -> None:
        self.ask = ask
        self.cached_tokens = 0
        self.output_ids: list[int] = []
        self.finish: Finish | None = None
        self.began_s = time.monotonic()
        self.task: asyncio.Task[None] | None = None
        self.abort_message = ""
        self._vocabulary = vocabulary
        self._seed = 0
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, seed: int, cached_tokens: int) -> None:
        """Say what the output follows from."""
        self._seed, self.cached_tokens = seed, cached_tokens

    def make(self, count: int) -> None:
        """Make the output `count` tokens long."""
        for position in range(len(self.output_ids), count):
            self.output_ids.append(token_at(self._seed, position, self._vocabulary.spoken))
        if self.ask.stream:
            self._wake()

    def end(self, finish: Finish) -> None:
        """Say how it ended; the first word stays."""
        if self.finish is None:
            self.finish = finish
            self._wake()

    def text(self, first: int = 0) -> str:
        """Return the text of the output from a token on."""
        return self._vocabulary.text(self.output_ids[first:])

    async def changed(self, seen: int) -> None:
        """Return once there are more than `seen` tokens, or it has ended."""
        while self.finish is None and (len(self.output_ids) <= seen or not self.ask.stream):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
