"""Every command of the shell blocks of README.md and docs/metrics.md, on our own deployment."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import leftovers
from ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
#: The commands that take `--name` and `--state-dir`.
OF_A_DEPLOYMENT = ("deploy", "status", "chat", "decisions", "schedule", "top", "link", "destroy")
#: What CI and a person's first try run; this file is part of them.
ELSEWHERE = ("make demo", "make test")


def documented_commands() -> list[str]:
    """Return the commands of plain code blocks, in order, continuation lines joined."""
    text = "".join((ROOT / name).read_text() for name in ("README.md", "docs/metrics.md"))
    fences = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fences if not language]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if re.match(r"(make|prfaasctl|curl|python|ip|\.venv)\b", line)]


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("readme")
    yield directory
    command = [BIN / "prfaasctl", "destroy", "--name", NAME, "--state-dir", directory]
    subprocess.run(command, check=True, capture_output=True)
    assert leftovers(NAME, directory / NAME) == []


NAME = f"r{os.getpid()}"
PORT = free_port()


def own(command: str, state_dir: Path) -> list[str]:
    """Return the words of a documented command, pointed at this test's deployment and port."""
    words = shlex.split(command.replace("127.0.0.1:8080", f"127.0.0.1:{PORT}"))
    words = [re.sub(r"^prfaas-(?=a$|b$)", f"prfaas-{NAME}-", word) for word in words]
    if words[0] == "prfaasctl":
        words[0] = str(BIN / "prfaasctl")
        if words[1] in OF_A_DEPLOYMENT:
            words += ["--name", NAME, "--state-dir", str(state_dir)]
        if words[1] == "deploy":
            words += ["--port", str(PORT)]
    return words


def in_readme_order() -> list[str]:
    """Return what to run here; `destroy` last, since the README shows curl after it."""
    commands = [c for c in documented_commands() if not c.startswith(ELSEWHERE)]
    return sorted(commands, key=lambda command: "destroy" in command)


def test_the_readme_has_commands() -> None:
    commands = documented_commands()
    assert {"make demo", "make test", "prfaasctl deploy --regions a,b"} <= set(commands)
    assert any(command.startswith("curl") for command in commands)


@pytest.mark.parametrize("command", in_readme_order())
def test_a_documented_command_works(command: str, state_dir: Path) -> None:
    done = subprocess.run(
        own(command, state_dir),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if command.startswith("curl"):
        assert '"choices"' in done.stdout, done.stdout
    if "/metrics" in command:
        assert "prfaas_transfer_engine_up 1.0" in done.stdout, done.stdout
