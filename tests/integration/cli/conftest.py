import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prfaas_cli.place import Place
from prfaas_cli.sweep import sweep

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def prfaasctl(tmp_path: Path) -> Run:
    """Run the command line as a person does, with a state directory of the test's own."""

    def run(*arguments: str, **settings: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "prfaas_cli", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PRFAAS_STATE_DIR": str(tmp_path / "s")},
            check=False,
            **settings,
        )

    return run


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place whose processes end with the test, whatever the test did."""
    # A name of its own: namespaces are found by it.
    place = Place(tmp_path, "clitest")
    place.logs.mkdir(parents=True)
    yield place
    sweep(place, keep_logs=False, say=lambda _: None)


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
