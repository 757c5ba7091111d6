"""Every `prfaasctl certs` command of docs/security.md, in order, and what its tables name."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from prfaas.config import parse_node_config
from prfaas_cli.app import run_command
from prfaas_transport.tls import TlsReason

TEXT = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
COMMANDS = re.findall(r"^prfaasctl .*$", TEXT, re.MULTILINE)
NODE = '[node]\nname = "a-prefill-0"\nrole = "prefill"\nregion = "a"\n'
ENGINE = '[engine]\nmodel_path = "m"\nbootstrap_port = 30100\n'


def test_the_commands_work_in_the_order_that_they_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        words = shlex.split(command)
        assert words[:2] == ["prfaasctl", "certs"], command
        assert run_command(words[1:], as_json=False) == 0, command


def test_the_configurations_are_valid() -> None:
    sections = re.findall(r"^```toml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert len(sections) == 2
    for section in sections:
        config = parse_node_config(NODE + ENGINE + section, source="docs/security.md")
        assert str(config.security.mode) == tomllib.loads(section)["security"]["mode"]


def test_every_reason_is_documented() -> None:
    assert set(re.findall(r"`(tls_[a-z_]+)`", TEXT)) == set(TlsReason)
