"""What a decode knows of prefill instances, learnt off the scheduler's thread.

SGLang asks a prefill's bootstrap server over HTTP on the thread that also runs every decode step,
for up to five seconds a time. Here a few threads of our own ask; the scheduler waits a tenth of a
second at most.
"""

import logging
import threading
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from prfaas.errors import PrfaasError

logger = logging.getLogger(__name__)

PATIENCE_S = 0.1
_THREADS = 4


@dataclass(frozen=True, slots=True)
class RefusedPrefill:
    """Stands in SGLang's table for a prefill that must not be used, until a request was told so.

    SGLang sets a request going only towards a prefill that its table has; towards any other it
    waits for ever. It reads no more than these two of it before our receiver says why not.
    """

    reason: str
    dp_size: int = 1
    follow_bootstrap_room: bool = False


class PrefillDirectory:
    """Runs `load(bootstrap_addr) -> bool` at most once at a time per prefill and keeps refusals.

    `load` returns False if the prefill cannot be reached (it will be asked again) and raises
    PrfaasError if it must not be used.
    """

    def __init__(self, load: Callable[[str], bool]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._futures: dict[str, Future[bool]] = {}
        self._refusals: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="prfaas-directory")

    def ready(self, bootstrap_addr: str) -> bool:
        """Return True once the prefill was loaded or refused; starts loading where nothing runs."""
        with self._lock:
            if bootstrap_addr in self._refusals:
                return True
            future = self._futures.get(bootstrap_addr)
            if future is None:
                future = self._pool.submit(self._load, bootstrap_addr)
                self._futures[bootstrap_addr] = future
        try:
            loaded = future.result(PATIENCE_S)
        except FutureTimeoutError:
            return False
        except PrfaasError as error:
            logger.error("prefill %s refused: %s", bootstrap_addr, error)
            with self._lock:
                self._refusals[bootstrap_addr] = str(error)
            loaded = True
        with self._lock:
            self._futures.pop(bootstrap_addr, None)
        return loaded

    def ensure(self, bootstrap_addr: str, table: MutableMapping[str, Any]) -> bool:
        """Return True once SGLang's `table` has the prefill, or what stands for a refused one."""
        if bootstrap_addr in table:
            return True
        if not self.ready(bootstrap_addr):
            return False
        with self._lock:
            refusal = self._refusals.pop(bootstrap_addr, None)
        if refusal is not None:
            table[bootstrap_addr] = RefusedPrefill(refusal)
        return True

    def close(self) -> None:
        """Stop taking work; a fetch in progress ends by its own timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def take_refusal(bootstrap_addr: str, table: MutableMapping[str, Any]) -> str | None:
    """Return why a prefill was refused, once; the next request asks it afresh."""
    found = table.get(bootstrap_addr)
    if not isinstance(found, RefusedPrefill):
        return None
    del table[bootstrap_addr]
    return found.reason
