"""What a scheduler does while it has nothing to compute.

SGLang spins while requests wait for their KV cache, even with `--sleep-on-idle`, which sleeps
only when no request is left at all. On a GPU machine that costs one core of many. Here several
engines share two cores, and the spinning thread holds the interpreter lock that the transfer's I/O
thread needs.
"""

import time
from typing import Any

NAP_S = 0.001


def nap(result: Any, scheduler: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Sleep a millisecond after an idle turn of the loop in which requests are waiting.

    Source: sglang 0.5.23 srt/managers/scheduler.py, `Scheduler.on_idle`.
    """
    if not scheduler.is_fully_idle():
        time.sleep(NAP_S)
    return result


def install() -> None:
    """Register the nap with SGLang."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.on_idle", nap, HookType.AFTER)
