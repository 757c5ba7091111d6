"""The commands of docs/topology.md, as they stand there: three regions, twins in two of them."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import leftovers, prfaasctl
from ports import free_port

from prfaas_netem.namespace import names

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(200)]

ROOT = Path(__file__).parents[2]
NAME = f"tp{os.getpid()}"


def documented() -> list[list[str]]:
    text = (ROOT / "docs/topology.md").read_text()
    return [shlex.split(line) for line in re.findall(r"^    prfaasctl (.*)$", text, re.MULTILINE)]


@pytest.fixture
def flags(tmp_path: Path) -> Iterator[list[str]]:
    flags = ["--name", NAME, "--state-dir", str(tmp_path)]
    yield flags
    assert prfaasctl("destroy", *flags).returncode == 0
    assert leftovers(NAME, tmp_path / NAME) == []


def test_the_documented_commands_work(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = documented()
    assert [words[0] for words in commands] == ["deploy", "link", "link", "link", "destroy"]
    for words in commands:
        more = ["--port", str(free_port())] if words[0] == "deploy" else []
        done = prfaasctl(*words, *more, *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        if words[0] == "deploy":
            assert "1 changes on schedule" in done.stderr
            made = {name for name in names() if name.startswith(f"prfaas-{NAME}-")}
            parts = ("wan", "us", "us.gpu-1", "eu", "asia")
            assert made == {f"prfaas-{NAME}-{part}" for part in parts}
