"""Waiting for what another process does, and reading what it wrote."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty while there is none."""
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value


def until(what: Callable[[], Any], *, limit_s: float = 20.0) -> Any:
    """Return the first true value of `what`."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s} s: {what}")
