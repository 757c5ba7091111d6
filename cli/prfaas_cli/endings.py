"""How a command that has things half made is told to end, other than by Ctrl-C."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_TERMINATED = 143
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, with its own exit code, and SIGHUP, of a terminal
    that closes, just as Ctrl-C. What `nohup` has ignored stays ignored."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers: dict[int, Any] = {signal.SIGTERM: terminate, signal.SIGHUP: hang_up}
    heard = [number for number in handlers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handlers[number]) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
