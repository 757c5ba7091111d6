"""The holder of one API key, as a gateway sees it: what it uses of its limits."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

from prfaas.api_keys import KeyEntry
from prfaas.reasons import Reason
from prfaas_gateway.errors import ServiceError
from prfaas_gateway.token_bucket import TokenBucket

_MINUTE_S = 60.0


class ClientKey:
    """Counts the requests and tokens of one key. One event loop only."""

    def __init__(self, name: str, entry: KeyEntry) -> None:
        self.name = name
        self.entry = entry
        self._running = 0
        self._requests = _bucket(entry.requests_per_s, max(1.0, math.ceil(entry.requests_per_s)))
        self._tokens = _bucket(entry.tokens_per_minute / _MINUTE_S, entry.tokens_per_minute)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count a request while the context lasts.

        Raises:
            ServiceError: the key has too many, with when to come again.
        """
        most = self.entry.concurrent_requests
        if most and self._running >= most:
            raise _refusal(f"{self._running} of {most} concurrent requests are running", 1.0)
        self._take(self._requests, 1.0, f"{self.entry.requests_per_s:g} requests/s")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def take_prompt(self, tokens: int) -> None:
        """Count a prompt. A key whose minute is used up, by answers too, must wait.

        Raises:
            ServiceError: with when to come again.
        """
        self._take(self._tokens, tokens, f"{self.entry.tokens_per_minute} tokens/min")

    def add_output(self, tokens: int) -> None:
        """Count an answer; the next prompt waits for what is too much."""
        if self._tokens is not None:
            self._tokens.take(tokens, now_s=_now_s())

    def _take(self, bucket: TokenBucket | None, amount: float, limit: str) -> None:
        if bucket is None:
            return
        now_s = _now_s()
        wait_s = bucket.wait_s(amount, now_s=now_s)
        if wait_s > 0:
            raise _refusal(f"the limit is {limit}", wait_s)
        bucket.take(amount, now_s=now_s)


def _bucket(per_s: float, burst: float) -> TokenBucket | None:
    return TokenBucket(per_s=per_s, burst=burst, now_s=_now_s()) if per_s else None


def _refusal(text: str, wait_s: float) -> ServiceError:
    message = f"{text} for this API key; try again in {math.ceil(wait_s)} s"
    return ServiceError(Reason.RATE_LIMIT_EXCEEDED, message, retry_after_s=wait_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
