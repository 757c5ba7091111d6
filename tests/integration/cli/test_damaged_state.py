import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

FLAGS = ("--name", "clitest")


def directory(tmp_path: Path) -> Path:
    made = tmp_path / "s" / "clitest"
    made.mkdir(parents=True)
    return made


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("supervisor.json", '{"processes": [1]}'),
        ("supervisor.json", '{"processes": {"a": 1}}'),
        ("supervisor.json", "[]"),
        ("y.engine.json", '{"shared_files": 5}'),
        ("y.engine.json", '{"shared_files": [5]}'),
        ("y.engine.json", '{"process": 5}'),
        ("deployment.json", "{}"),
    ],
)
def test_destroy_removes_damaged_state(
    prfaasctl: Run, tmp_path: Path, name: str, text: str
) -> None:
    place = directory(tmp_path)
    (place / name).write_text(text)
    done = prfaasctl("destroy", *FLAGS)
    assert done.returncode == 0, done.stderr
    assert not place.exists()


@pytest.mark.parametrize("text", ["{}", '{"options": 5, "processes": 3}'])
@pytest.mark.parametrize("command", [("status",), ("chat", "hi")])
def test_a_damaged_deployment_is_said_in_one_line(
    prfaasctl: Run, tmp_path: Path, command: tuple[str, ...], text: str
) -> None:
    path = directory(tmp_path) / "deployment.json"
    path.write_text(text)
    done = prfaasctl(*command, *FLAGS)
    assert done.returncode == 1
    assert done.stderr == f"prfaasctl: error: {path} is damaged; run prfaasctl destroy\n"
