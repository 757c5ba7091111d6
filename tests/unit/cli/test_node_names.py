"""No command makes a path of a name that is none."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from prfaas_cli.app import run_command


@pytest.mark.parametrize(
    "command",
    [
        ("node", "events"),
        ("node", "role", "prefill"),
        ("twin", "fault"),
        ("certs", "renew"),
        ("certs", "issue", "--region", "a"),
    ],
)
@pytest.mark.parametrize("name", ["../../etc/passwd", "A", "a" * 41, ""])
def test_a_node_is_named_as_in_its_configuration(
    command: Sequence[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment = tmp_path / "default" / "deployment.json"
    deployment.parent.mkdir()
    deployment.write_text("{}")
    monkeypatch.setenv("PRFAAS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("PRFAAS_CERTS_DIR", str(tmp_path / "certs"))
    assert run_command([*command[:2], name, *command[2:]], as_json=False) == 2
    said = capsys.readouterr().err
    assert f"NODE {name!r}: allowed are 1 to 40 lowercase letters, digits and dashes" in said
    assert not (tmp_path / "certs").exists()
