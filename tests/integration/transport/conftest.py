"""Every test leaves neither threads nor file descriptors behind."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wan_rig import regions

__all__ = ["regions"]


def _open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    threads, fds = threading.active_count(), _open_fds()
    yield
    assert threading.active_count() <= threads
    assert _open_fds() <= fds


@pytest.fixture
def keep(nothing_left: None) -> Iterator[Callable[[Any], Any]]:
    """Close the node of what it is given, at the end of the test."""
    kept: list[Any] = []

    def take(side: Any) -> Any:
        kept.append(side)
        return side

    yield take
    for side in reversed(kept):
        getattr(side, "node", side).close()
