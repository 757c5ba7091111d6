"""Let nobody keep us from mending what we broke."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP meanwhile; does nothing outside the main thread."""
    before = []
    with suppress(ValueError):
        before = [(number, signal.signal(number, signal.SIG_IGN)) for number in _NUMBERS]
    try:
        yield
    finally:
        for number, handler in before:
            with suppress(TypeError):  # a handler that was not set from Python cannot be set again
                signal.signal(number, handler)
