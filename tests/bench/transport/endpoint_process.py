"""The process of a contender, from inside: its CPU time, and its conversation in JSON lines."""

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

Command = Callable[[dict[str, Any]], dict[str, Any]]


def cpu_s() -> float:
    """Return the CPU seconds of all threads of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def converse(make: Callable[[], tuple[dict[str, Any], Command]]) -> None:
    """Say what `make` returned first, answer commands until stdin ends, and leave.

    What a library prints goes to stderr. Threads that hang in a library do not hold the end up.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    hello, command = make()
    print(json.dumps(hello), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(command(json.loads(line))), file=answers, flush=True)
    os._exit(0)
