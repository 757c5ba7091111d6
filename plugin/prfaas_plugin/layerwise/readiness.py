"""When a layer's bytes may be read: at once on a CPU, after an event of the stream on a GPU."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

Probe = Callable[[], bool]

POLL_S = 50e-6
MAX_WAITING = 1 << 14


class Readiness(Protocol):
    """What a device's order of execution means for reading its memory."""

    def mark(self) -> Probe:
        """Return what says, from any thread, whether all that was queued here so far has run."""
        ...

    def host_copy(self, tensor: Any) -> NDArray[np.int64]:
        """Return an integer tensor in host memory, valid once a later `mark` says so."""
        ...


class InOrder:
    """A CPU: what a line of code did is done when the next one runs."""

    def mark(self) -> Probe:
        """Return a probe that is always true."""
        return _always

    def host_copy(self, tensor: Any) -> NDArray[np.int64]:
        """Return the tensor's values."""
        return np.asarray(tensor.numpy(), dtype=np.int64)


class CudaEvents:
    """A CUDA device: an event on the current stream; nothing here waits for it."""

    def mark(self) -> Probe:
        """Record an event; its `query` asks the driver and never blocks."""
        import torch

        event = torch.cuda.Event()
        event.record()
        probe: Probe = event.query
        return probe

    def host_copy(self, tensor: Any) -> NDArray[np.int64]:
        """Queue a copy to pinned memory on the current stream."""
        import torch

        host = torch.empty(tensor.shape, dtype=torch.int64, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        return np.asarray(host.numpy())


def readiness_of(device: str) -> Readiness:
    """Return the readiness of SGLang's `--device`."""
    return InOrder() if device == "cpu" else CudaEvents()


def _always() -> bool:
    return True


class Announcer:
    """A thread that runs actions in the order given, each once its probe is true.

    It keeps the lanes' lock and the building of chunks off the scheduler's thread.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._waiting: queue.SimpleQueue[tuple[Probe, Callable[[], None]] | None]
        self._waiting = queue.SimpleQueue()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="prfaas-layers", daemon=True)
        self._thread.start()

    def announce(self, probe: Probe, action: Callable[[], None]) -> bool:
        """Have `action` run once `probe()` is true; False if too much waits already."""
        if self._is_stopping or self._waiting.qsize() >= MAX_WAITING:
            return False
        self._waiting.put((probe, action))
        return True

    def close(self) -> None:
        """Stop; what still waits is dropped."""
        self._is_stopping = True
        self._waiting.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (entry := self._waiting.get()) is not None:
            try:
                if self._wait(entry[0]):
                    entry[1]()
            # The outermost frame of one action: what it left undone is `send()`'s to do.
            except Exception as error:
                self._on_error(error)

    def _wait(self, probe: Probe) -> bool:
        while not self._is_stopping:
            if probe():
                return True
            time.sleep(POLL_S)
        return False
