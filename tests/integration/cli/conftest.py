import subprocess
import sys
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
