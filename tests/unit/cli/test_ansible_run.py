"""What becomes of ansible when the command that runs it ends."""

from pathlib import Path

import pytest
from waiting import until

from prfaas_cli.ansible_run import play
from prfaas_cli.output import Output


class Interrupted(Output):
    """Is told of the first task, just when Ctrl-C comes."""

    def __init__(self) -> None:
        super().__init__(as_json=False)

    def step(self, text: str) -> None:
        raise KeyboardInterrupt(text)


def test_a_playbook_ends_with_the_command_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pid_file = tmp_path / "ansible-playbook", tmp_path / "pid"
    program.write_text(
        f"#!/bin/sh\nsleep 300 &\necho $! > {pid_file}\necho 'TASK [common : wait] ***'\nwait\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(KeyboardInterrupt, match="common: wait"):
        play(
            "site.yml",
            tmp_path / "hosts.yml",
            {},
            log=tmp_path / "log",
            output=Interrupted(),
            timeout_s=600.0,
        )
    sleeping = Path("/proc") / pid_file.read_text().strip() / "cmdline"
    until(lambda: not sleeping.exists() or b"sleep" not in sleeping.read_bytes())
