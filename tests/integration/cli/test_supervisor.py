import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import read, until

from prfaas_agent.process import ProcessId, identify, is_alive
from prfaas_cli.place import MARKER, Place
from prfaas_cli.process_plan import LISTEN_FD, ProcessSpec
from prfaas_cli.sweep import sweep

pytestmark = pytest.mark.root

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
)
SERVE = (
    sys.executable,
    "-c",
    f"""
import os, socket
listener = socket.socket(fileno={LISTEN_FD})
while True:
    connection, _ = listener.accept()
    connection.sendall(str(os.getpid()).encode())
    connection.close()
""",
)


def start(place: Place, *specs: ProcessSpec) -> "subprocess.Popen[bytes]":
    place.write_deployment({"processes": [spec.to_json() for spec in specs]})
    with place.log("supervisor").open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "prfaas_cli.supervisor", "--state", str(place.directory)],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, MARKER: str(place.directory)},
        )
    until(lambda: state(place).get("pid") == supervisor.pid and all_run(place))
    return supervisor


def state(place: Place) -> dict[str, Any]:
    return read(place.supervisor_file)


def entry(place: Place, name: str) -> dict[str, Any]:
    found: dict[str, Any] = state(place)["processes"][name]
    return found


def process(place: Place, name: str) -> ProcessId:
    found = entry(place, name)
    return ProcessId(found["pid"], found["start_ticks"])


def all_run(place: Place) -> bool:
    return all(item["pid"] for item in state(place)["processes"].values())


def kill(supervisor: "subprocess.Popen[bytes]") -> None:
    supervisor.kill()
    supervisor.wait()


def test_a_killed_process_is_started_again_and_counted(place: Place) -> None:
    with start(place, ProcessSpec("one", SLEEP), ProcessSpec("two", SLEEP)) as supervisor:
        before, other = process(place, "one"), process(place, "two")
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: entry(place, "one")["restarts"] == 1 and process(place, "one") != before)
        assert is_alive(process(place, "one"))
        assert entry(place, "one")["last_exit"] == "killed by signal 9"
        assert process(place, "two") == other
        kill(supervisor)


def test_a_process_that_cannot_start_or_stay_is_tried_again_and_said(place: Place) -> None:
    missing = ProcessSpec("missing", ("/no/such/program",))
    failing = ProcessSpec("failing", (sys.executable, "-c", "raise SystemExit(3)"))
    place.write_deployment({"processes": [missing.to_json(), failing.to_json()]})
    with subprocess.Popen(
        [sys.executable, "-m", "prfaas_cli.supervisor", "--state", str(place.directory)]
    ) as supervisor:
        until(lambda: state(place).get("processes"))
        until(lambda: entry(place, "missing")["restarts"] >= 2)
        until(lambda: entry(place, "failing")["restarts"] >= 2)
        assert "No such file" in entry(place, "missing")["last_exit"]
        until(lambda: entry(place, "failing")["last_exit"] == "exit code 3")
        kill(supervisor)


def test_the_next_supervisor_adopts_what_lives_and_starts_what_does_not(place: Place) -> None:
    with start(place, ProcessSpec("one", SLEEP), ProcessSpec("two", SLEEP)) as supervisor:
        one, two = process(place, "one"), process(place, "two")
        kill(supervisor)
        assert is_alive(one)
        os.kill(two.pid, signal.SIGKILL)
        until(lambda: not is_alive(two))
    with start(place, ProcessSpec("one", SLEEP), ProcessSpec("two", SLEEP)) as supervisor:
        assert process(place, "one") == one
        assert process(place, "two") != two
        assert entry(place, "one")["adopted"]
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: process(place, "one") != one and all_run(place))
        kill(supervisor)


def test_a_process_with_another_command_is_not_adopted(place: Place) -> None:
    with start(place, ProcessSpec("one", SLEEP)) as supervisor:
        one = process(place, "one")
        kill(supervisor)
    with start(place, ProcessSpec("one", (*SLEEP, "new"))) as supervisor:
        assert process(place, "one") != one
        kill(supervisor)


def test_a_reused_process_id_is_not_adopted(place: Place) -> None:
    with start(place, ProcessSpec("one", SLEEP)) as supervisor:
        kill(supervisor)
        one = process(place, "one")
        found = state(place)
        found["processes"]["one"]["start_ticks"] += 1
        place.supervisor_file.write_text(json.dumps(found))
    with start(place, ProcessSpec("one", SLEEP)) as supervisor:
        assert process(place, "one").pid != one.pid
        kill(supervisor)


def test_only_one_supervisor_runs(place: Place) -> None:
    with start(place, ProcessSpec("one", SLEEP)) as supervisor:
        second = subprocess.run(
            [sys.executable, "-m", "prfaas_cli.supervisor", "--state", str(place.directory)],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert second.returncode == 1
        assert "another supervisor runs" in second.stderr
        kill(supervisor)


def test_sigterm_ends_the_supervisor_with_all_it_runs(place: Place) -> None:
    with start(place, ProcessSpec("one", SLEEP), ProcessSpec("two", SLEEP, stop_wave=1)) as daemon:
        one, two = process(place, "one"), process(place, "two")
        daemon.terminate()
        assert daemon.wait(20) == 0
        assert not is_alive(one)
        assert not is_alive(two)


def test_a_listening_socket_outlives_the_process_that_serves_it(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    spec = ProcessSpec("gateway", SERVE, listen=f"127.0.0.1:{port}")

    def ask() -> int:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            return int(connection.recv(100))

    with start(place, spec) as supervisor:
        assert ask() == process(place, "gateway").pid
        before = process(place, "gateway")
        os.kill(before.pid, signal.SIGKILL)
        # Not refused: the supervisor holds the socket, the next process answers.
        answered = ask()
        assert answered != before.pid
        kill(supervisor)
    with start(place, spec) as supervisor:
        assert ask() == answered, "the adopted process still serves"
        os.kill(answered, signal.SIGKILL)
        until(lambda: entry(place, "gateway")["pid"] not in (0, answered))
        assert ask() not in (answered, before.pid)
        kill(supervisor)


@pytest.mark.parametrize("lose_files", [False, True])
def test_a_sweep_ends_everything_even_what_no_file_names(place: Place, lose_files: bool) -> None:
    with start(place, ProcessSpec("one", STUBBORN), ProcessSpec("two", SLEEP)) as supervisor:
        running = [process(place, "one"), process(place, "two"), identify(supervisor.pid)]
        time.sleep(0.3)  # for the stubborn one to become so
        if lose_files:
            for path in (place.supervisor_file, place.deployment_file):
                path.unlink()
        swept = sweep(place, keep_logs=False, say=lambda _: None)
        supervisor.wait(10)
        assert not [item for item in running if item and is_alive(item)]
        assert swept.processes >= 2
        assert not place.directory.exists()
    assert sweep(place, keep_logs=False, say=lambda _: None).nothing


def test_a_sweep_can_keep_the_logs(place: Place, tmp_path: Path) -> None:
    with start(place, ProcessSpec("one", SLEEP)) as supervisor:
        sweep(place, keep_logs=True, say=lambda _: None)
        supervisor.wait(10)
    assert [entry.name for entry in place.directory.iterdir()] == ["logs"]
    assert (place.logs / "one.log").exists()


def test_a_sweep_leaves_other_deployments_alone(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path, "clitest2")
    other.logs.mkdir(parents=True)
    spec = ProcessSpec("one", SLEEP)
    with start(place, spec) as mine, start(other, spec) as theirs:
        sweep(place, keep_logs=False, say=lambda _: None)
        mine.wait(10)
        assert is_alive(process(other, "one"))
        assert theirs.poll() is None
        sweep(other, keep_logs=False, say=lambda _: None)
