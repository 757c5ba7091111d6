import json
from pathlib import Path

import pytest

from prfaas.api_keys import KeyRole, key_digest, parse_keys
from prfaas_cli.api_key import key_headers
from prfaas_cli.app import run_command


def run(*arguments: str) -> int:
    return run_command(("keys", *arguments), as_json="--json" in arguments)


def test_a_key_is_shown_once_and_kept_as_a_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.toml"
    where = ("--file", str(file))
    assert run("list", *where) == 0
    assert capsys.readouterr().out == "no keys\n"
    assert run("add", "alice", "--tenant", "acme", "--requests-per-s", "2.5", *where) == 0
    key = capsys.readouterr().out.strip()
    assert key.startswith("pfs-")
    assert len(key) > 40
    assert run("add", "root", "--role", "admin", "--json", *where) == 0
    other = json.loads(capsys.readouterr().out)["key"]
    assert key != other
    assert file.stat().st_mode & 0o777 == 0o600
    assert key not in file.read_text()
    keys = parse_keys(file.read_text(), source="").keys
    assert keys["alice"].sha256 == key_digest(key)
    assert (keys["alice"].tenant, keys["alice"].requests_per_s) == ("acme", 2.5)
    assert keys["root"].role is KeyRole.ADMIN
    assert run("list", *where) == 0
    shown = capsys.readouterr().out
    assert "acme" in shown
    assert key_digest(key) not in shown
    file.chmod(0o640)
    assert run("revoke", "alice", *where) == 0
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(parse_keys(file.read_text(), source="").keys) == ["root"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("add", "Alice"), 2, "lowercase"),
        (("add", "a", "--tenant", "A B"), 2, "tenant"),
        (("add", "a", "--tokens-per-minute", "-1"), 2, "tokens_per_minute"),
        (("add", "a", "--role", "king"), 2, "king"),
        (("revoke", "nobody"), 1, "no key 'nobody'; there is: root"),
        (("add", "root"), 1, "there is a key root"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    file = tmp_path / "keys.toml"
    assert run("add", "root", "--file", str(file)) == 0
    capsys.readouterr()
    before = file.read_text()
    assert run(*arguments, "--file", str(file)) == code
    said = capsys.readouterr()
    assert says in said.err
    assert "pfs-" not in said.out + said.err
    assert file.read_text() == before


def test_a_damaged_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("keys = 5\n")
    assert run("add", "a", "--file", str(file)) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_text() == "keys = 5\n"


def test_the_key_for_a_gateway_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRFAAS_API_KEY", raising=False)
    assert key_headers() == {}
    monkeypatch.setenv("PRFAAS_API_KEY", "pfs-x")
    assert key_headers() == {"Authorization": "Bearer pfs-x"}


@pytest.mark.parametrize("text", ["", "two words\nand lines", "\xe4"])
def test_what_is_no_key_is_said_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "key"
    file.write_text(text, encoding="latin-1")
    arguments = ("--api-key-file", str(file), "chat", "hi", "--url", "http://127.0.0.1:1")
    assert run_command(arguments, as_json=False) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert "two words" not in said
