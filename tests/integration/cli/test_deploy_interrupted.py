"""A deploy that does not come to its end. The engines never get as far as a model here."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import read, until

from prfaas_agent.process import is_alive
from prfaas_cli.place import Place
from prfaas_cli.processes import deployment_processes, marked_processes, process_of
from prfaas_cli.sweep import sweep
from prfaas_netem.owner import namespaces_of

pytestmark = pytest.mark.root

NAME = "cliint"


class Deploy:
    """A running `prfaasctl deploy`, and what is left of it."""

    def __init__(self, tmp_path: Path) -> None:
        model = tmp_path / "model"
        model.mkdir()
        for name in ("config.json", "tokenizer.json"):
            (model / name).write_text("{}")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.place = Place(tmp_path / "state", NAME)
        self.flags = ["--name", NAME, "--state-dir", str(self.place.root)]
        self.output = tmp_path / "output"
        self.argv = ["deploy", "--regions", "a,b", "--model", str(model), "--port", str(self.port)]

    def start(self, *flags: str) -> "subprocess.Popen[bytes]":
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "prfaas_cli", *self.argv, *self.flags, *flags],
                stdout=output,
                stderr=output,
            )

    def text(self) -> str:
        return self.output.read_text()

    def assert_nothing_left(self) -> None:
        assert namespaces_of(NAME) == ()
        assert list(marked_processes(self.place)) == []
        assert deployment_processes(self.place, ()) == set()
        with socket.create_server(("127.0.0.1", self.port)):
            pass


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    deploy = Deploy(tmp_path)
    yield deploy
    sweep(deploy.place, keep_logs=False, say=lambda _: None)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 130)]
)
@pytest.mark.parametrize("moment", ["regions and wires", "supervisor", "etcd"])
def test_a_signal_in_mid_deploy_leaves_nothing(
    deploy: Deploy, moment: str, number: int, code: int
) -> None:
    with deploy.start() as command:
        until(lambda: f"s  {moment}" in deploy.text() or command.poll() is not None)
        command.send_signal(number)
        assert command.wait(40) == code, deploy.text()
    assert "Traceback" not in deploy.text()
    assert ("prfaasctl: error: interrupted" in deploy.text()) == (code == 130)
    assert not deploy.place.root.exists()
    deploy.assert_nothing_left()


def test_a_terminal_that_is_gone_keeps_nothing_from_being_removed(deploy: Deploy) -> None:
    reader, writer = os.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "prfaas_cli", *deploy.argv, *deploy.flags],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
    )
    with command:
        os.close(writer)
        said = b""
        while b"s  etcd" not in said:
            said += os.read(reader, 4096)
        os.close(reader)
        command.send_signal(signal.SIGHUP)
        assert command.wait(40) == 130
    deploy.assert_nothing_left()


def test_a_deploy_that_takes_too_long_cleans_up_and_keeps_the_logs(deploy: Deploy) -> None:
    with deploy.start("--timeout", "3") as command:
        assert command.wait(60) == 1
    assert "not ready after 3 s" in deploy.text()
    assert f"logs are kept in {deploy.place.logs}" in deploy.text()
    assert [entry.name for entry in deploy.place.directory.iterdir()] == ["logs"]
    deploy.assert_nothing_left()


def test_a_deploy_that_was_killed_is_removed_by_destroy(deploy: Deploy) -> None:
    with deploy.start() as command:
        until(lambda: "s  etcd" in deploy.text())
        command.kill()
        command.wait()
    assert namespaces_of(NAME) != ()
    destroyed = subprocess.run(
        [sys.executable, "-m", "prfaas_cli", "destroy", *deploy.flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "3 namespaces" in destroyed.stdout
    assert not deploy.place.root.exists()
    deploy.assert_nothing_left()


def test_a_running_deployment_is_not_touched_by_other_options_or_directories(
    deploy: Deploy, tmp_path: Path
) -> None:
    with deploy.start() as command:
        until(lambda: "s  etcd" in deploy.text())
        os.kill(command.pid, signal.SIGKILL)
        command.wait()
    supervisor = process_of(read(deploy.place.supervisor_file))
    etcd = process_of(read(deploy.place.supervisor_file)["processes"]["b-etcd-0"])
    with deploy.start("--threshold", "99") as command:
        assert command.wait(60) == 1
    assert "--threshold: 512 -> 99" in deploy.text()
    assert f"prfaasctl destroy --name {NAME}" in deploy.text()
    elsewhere = ["--name", NAME, "--state-dir", str(tmp_path / "elsewhere")]
    refused = subprocess.run(
        [sys.executable, "-m", "prfaas_cli", "destroy", *elsewhere],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    assert str(deploy.place.directory) in refused.stderr
    assert supervisor is not None
    assert etcd is not None
    assert is_alive(supervisor)
    assert is_alive(etcd)
