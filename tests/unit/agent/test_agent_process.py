import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prfaas_agent.process import (
    ProcessId,
    end_processes,
    end_session,
    identify,
    is_alive,
    send_signal,
    session_members,
    wait_exit,
)
from prfaas_agent.state_file import read_json, write_json


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_itself_and_a_reused_id_is_not(sleeper: "subprocess.Popen[bytes]") -> None:
    process = identify(sleeper.pid)
    assert process is not None
    assert is_alive(process)
    other = ProcessId(process.pid, process.start_ticks + 1)
    assert not is_alive(other)
    assert not send_signal(other, signal.SIGKILL)
    assert end_processes([other], grace_s=0.0) == []
    assert sleeper.poll() is None


def test_a_zombie_is_not_alive(sleeper: "subprocess.Popen[bytes]") -> None:
    process = identify(sleeper.pid)
    assert process is not None
    assert end_processes([process], grace_s=5.0) == []
    assert Path(f"/proc/{sleeper.pid}").exists(), "not reaped yet"
    assert identify(sleeper.pid) is None


async def test_the_exit_of_a_process_is_awaited(sleeper: "subprocess.Popen[bytes]") -> None:
    process = identify(sleeper.pid)
    assert process is not None
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(wait_exit(process))
        sleeper.kill()
    await wait_exit(process)


def test_a_session_ends_with_children_that_ignore_sigterm() -> None:
    child = (
        "import signal, time; signal.signal(15, signal.SIG_IGN);"
        "print(1, flush=True); time.sleep(60)"
    )
    program = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE);"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        child_pid = int(leader.stdout.readline())
        process = identify(leader.pid)
        assert process is not None
        assert {member.pid for member in session_members(process)} == {leader.pid, child_pid}
        assert end_session(process, grace_s=2.0) == []
        assert session_members(process) == []
        assert identify(child_pid) is None


def test_a_state_file_is_replaced_whole_and_a_broken_one_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
    path.write_text('{"a": ')
    assert read_json(path) is None
    path.write_text("[1]")
    assert read_json(path) is None
    assert read_json(tmp_path / "missing") is None


def test_a_value_that_is_not_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
