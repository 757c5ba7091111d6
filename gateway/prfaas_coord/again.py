"""What is to go on for ever, and fails from time to time."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

from prfaas_coord.backoff import Backoff

logger = logging.getLogger(__name__)


async def again_and_again(
    listen: Callable[[], Awaitable[None]], *, what: str, backoff: Backoff
) -> NoReturn:
    """Listen to a stream, and again whenever that ends, until cancelled.

    Waits in between, from half of what `backoff` says to all of it: not everybody comes at once.
    """
    while True:
        began_s = time.monotonic()
        try:
            await listen()
            problem = "the stream ended"
        except Exception as error:
            # A stream's outermost frame: whatever the other side says must not end this process.
            problem = f"{type(error).__name__}: {error}"
        logger.debug("%s: %s", what, problem)
        wait_s = backoff.next_s(ran_s=time.monotonic() - began_s)
        await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
