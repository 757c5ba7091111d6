"""A disk that is full keeps the supervisor from writing, not from keeping processes running."""

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from prfaas_agent.state_file import read_json
from prfaas_cli import supervision
from prfaas_cli.place import Place
from prfaas_cli.process_plan import ProcessSpec
from prfaas_cli.supervision import Supervisor, bound_log

_WAIT_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_WAIT_S):
        while not condition():  # noqa: ASYNC110 - short
            await asyncio.sleep(0.02)


async def test_a_process_that_ends_on_a_full_disk_is_started_again_and_told_of_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "full")
    place.directory.mkdir()
    supervisor = Supervisor(place, [ProcessSpec("one", ("/bin/sleep", "60"))])
    stop = asyncio.Event()
    running = asyncio.create_task(supervisor.run(stop))
    try:
        await until(lambda: bool(supervisor.keepings) and supervisor.keepings["one"].pid > 0)
        first = supervisor.keepings["one"].pid
        await until(lambda: told(place) == first)
        with monkeypatch.context() as full:
            full.setattr(supervision, "write_json", refuse)
            os.kill(first, signal.SIGKILL)
            await until(lambda: supervisor.keepings["one"].pid not in (0, first))
            assert told(place) == first
        second = supervisor.keepings["one"].pid
        await until(lambda: told(place) == second)
        assert not running.done()
    finally:
        stop.set()
        await asyncio.wait_for(running, _WAIT_S)
    assert supervisor.keepings["one"].last_exit == "stopped"


def told(place: Place) -> int:
    found = read_json(place.supervisor_file) or {"processes": {"one": {"pid": 0}}}
    return int(found["processes"]["one"]["pid"])


def refuse(_path: Path, _value: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_that_cannot_be_moved_stays(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_bytes(b"x" * 100)
    (tmp_path / "one.log.1").mkdir()
    bound_log(log, limit_bytes=10)
    assert log.stat().st_size == 100
