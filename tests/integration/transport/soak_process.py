"""A node of a soak as its parent sees it: one process, one life."""

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def _path(*more: Path) -> str:
    """Return PYTHONPATH with more folders."""
    return os.pathsep.join([*map(str, more), *filter(None, [os.environ.get("PYTHONPATH")])])


class NodeProcess:
    """One life of a node."""

    numbers = itertools.count()

    def __init__(self, name: str, settings: dict[str, Any], folder: Path) -> None:
        number = next(self.numbers)
        self.name, self.life = name, f"{name}#{number}"
        self.was_killed = False
        self.ended_s = float("inf")
        self.log = folder / f"{name}-{number}.jsonl"
        self.log.touch()
        argv = {
            **settings,
            "name": name,
            "log": str(self.log),
            "first_room": 1 + number * 1_000_000,
        }
        script = Path(__file__).with_name("soak_node.py")
        support = Path(__file__).parents[2] / "support"
        with self.log.with_suffix(".err").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(argv)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": _path(support), "OMP_NUM_THREADS": "1"},
            )

    def answer(self) -> dict[str, Any]:
        """Return the next line. Raises: ValueError if the process has died."""
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def has_answer(self) -> bool:
        """Say whether `answer` would not wait."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def ask(self, order: str, **more: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"order": order, **more}) + "\n")
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.was_killed = True
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.ended_s = min(self.ended_s, time.monotonic())
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
