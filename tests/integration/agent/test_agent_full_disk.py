"""A node whose disk is full: its agent lives on, and no engine runs that no file names."""

import contextlib
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from twin_engines import twin_config

from prfaas.errors import PrfaasError
from prfaas.records import NodeRecord, Role
from prfaas_agent import agent as agents
from prfaas_agent import engine as engines
from prfaas_agent import process as processes
from prfaas_agent.agent import Agent
from prfaas_agent.engine import EngineFiles
from prfaas_agent.registration import Registered


def refuse(_path: Path, _value: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.asynccontextmanager
async def nowhere(_record: NodeRecord) -> AsyncIterator[Registered]:
    raise AssertionError("nothing is registered here")
    yield


@pytest.fixture
def files(tmp_path: Path) -> EngineFiles:
    found = EngineFiles(twin_config("a", Role.PREFILL, model=tmp_path, state_dir=tmp_path))
    found.prepare()
    return found


def test_an_engine_that_no_file_can_name_is_ended(
    files: EngineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def launch(_args: Sequence[str], _env: Mapping[str, str], _log: Path, _home: Path) -> int:
        started.append(subprocess.Popen(["/bin/sleep", "60"], start_new_session=True))
        return started[0].pid

    monkeypatch.setattr(engines, "write_json", refuse)
    with pytest.raises(PrfaasError, match=r"a\.engine\.json: No space left"):
        engines.start(files, launch, arguments=["x"])
    assert started[0].wait(10) < 0
    assert processes.identify(started[0].pid) is None


def test_an_engine_whose_log_cannot_be_opened_is_an_error_of_ours(files: EngineFiles) -> None:
    def launch(_args: Sequence[str], _env: Mapping[str, str], _log: Path, _home: Path) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(PrfaasError, match="No space left"):
        engines.start(files, launch, arguments=["x"])


async def test_an_agent_that_cannot_tell_what_it_does_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = twin_config("a", Role.PREFILL, model=tmp_path, state_dir=tmp_path)
    agent = Agent(config, register=nowhere)
    monkeypatch.setattr(agents, "write_json", refuse)
    agent._report("ended", detail="the engine ended")
    assert "No space left on device; not told: ended" in caplog.text
