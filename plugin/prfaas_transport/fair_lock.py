"""A lock that a busy thread cannot take twice in a row while another waits."""

import threading
from types import TracebackType


class FairLock:
    """The I/O thread takes and frees its lock all the time; whoever waits gets the next turn.

    A waiter holds the gate while it waits for the lock, so the I/O thread queues up behind it.
    """

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._gate:
            self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()
