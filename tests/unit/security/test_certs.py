"""`prfaasctl certs`: a CA that is never overwritten, idempotent issues, rotation in two steps."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from prfaas_cli.app import run_command


class Certs:
    """Runs `prfaasctl certs` on one directory."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys

    def fails(self, *arguments: str) -> str:
        """Run a command that must fail; return its one line."""
        self._capsys.readouterr()
        assert run_command(["certs", *arguments, "--dir", str(self.directory)], as_json=False) != 0
        error = self._capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    def ok(self, *arguments: str) -> dict[str, Any]:
        """Run a command that must succeed; return its document."""
        self._capsys.readouterr()
        words = ["certs", *arguments, "--dir", str(self.directory), "--json"]
        assert run_command(words, as_json=True) == 0
        return dict(json.loads(self._capsys.readouterr().out))

    def serial(self, node: str) -> str:
        return str({c["node"]: c for c in self.ok("show")["certificates"]}[node]["serial"])


@pytest.fixture
def certs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Certs:
    made = Certs(tmp_path / "certs", capsys)
    made.ok("init", "--deployment", "demo")
    made.ok("issue", "n1", "--region", "a", "--address", "10.0.0.1", "--address", "n1.example")
    return made


def test_a_certificate_says_who_and_where(certs: Certs) -> None:
    shown = certs.ok("show")
    assert shown["deployment"] == "demo"
    (node,) = shown["certificates"]
    assert node["identity"] == "prfaas://demo/a/n1"
    assert node["addresses"] == ["10.0.0.1", "n1.example"]
    assert 89 < node["days_left"] <= 90
    assert node["problems"] == []
    certs.ok("verify")


def test_keys_are_for_their_owner_only(certs: Certs) -> None:
    for name in ("ca.key", "n1.key"):
        assert stat.S_IMODE((certs.directory / name).stat().st_mode) == 0o600
    (certs.directory / "n1.key").chmod(0o644)
    assert "n1.key is open to others" in certs.fails("verify")


def test_a_ca_is_never_overwritten(certs: Certs) -> None:
    before = (certs.directory / "ca.key").read_bytes()
    certs.ok("init", "--deployment", "demo")
    assert "is the CA of deployment demo" in certs.fails("init", "--deployment", "other")
    assert (certs.directory / "ca.key").read_bytes() == before
    (certs.directory / "ca.crt").unlink()
    assert "remove it" in certs.fails("init", "--deployment", "demo")
    assert (certs.directory / "ca.key").read_bytes() == before


def test_a_second_issue_changes_nothing_unless_something_differs(certs: Certs) -> None:
    first = certs.serial("n1")
    certs.ok("issue", "n1", "--region", "a", "--address", "n1.example", "--address", "10.0.0.1")
    assert certs.serial("n1") == first
    certs.ok("issue", "n1", "--region", "a", "--address", "10.0.0.2")
    assert certs.serial("n1") != first


def test_renew_renews_what_ends_soon_and_keeps_the_key(certs: Certs) -> None:
    key = (certs.directory / "n1.key").read_bytes()
    first = certs.serial("n1")
    certs.ok("renew")
    assert certs.serial("n1") == first
    certs.ok("renew", "--before", "91")
    assert certs.serial("n1") != first
    assert (certs.directory / "n1.key").read_bytes() == key
    certs.ok("renew", "n1", "--new-key")
    assert (certs.directory / "n1.key").read_bytes() != key
    certs.ok("verify")


def test_a_ca_is_replaced_in_two_steps(certs: Certs) -> None:
    old = (certs.directory / "ca.crt").read_bytes()
    authorities = certs.ok("init", "--rotate")["authorities"]
    assert [ca["signs"] for ca in authorities] == [True, False]
    assert old in (certs.directory / "ca.crt").read_bytes()
    certs.ok("verify")  # the old CA's certificates are still good
    assert "n1: signed by an old CA" in certs.fails("init", "--retire")
    certs.ok("renew")
    assert len(certs.ok("init", "--retire")["authorities"]) == 1
    assert old not in (certs.directory / "ca.crt").read_bytes()
    certs.ok("verify")


def test_a_command_cut_short_is_gone_on_from(certs: Certs) -> None:
    """A new key without its certificate, and a new CA without its key."""
    certs.ok("issue", "n2", "--region", "a")
    (certs.directory / "n1.key").write_bytes((certs.directory / "n2.key").read_bytes())
    assert "n1.key is another key" in certs.fails("verify")
    certs.ok("issue", "n1", "--region", "a", "--address", "10.0.0.1", "--address", "n1.example")
    certs.ok("verify")
    key = (certs.directory / "ca.key").read_bytes()
    certs.ok("init", "--rotate")
    (certs.directory / "ca.key").write_bytes(key)
    certs.ok("issue", "n3", "--region", "a")
    certs.ok("verify")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("issue", "n1"), "--region"),
        (("issue", "N1", "--region", "a"), "NODE 'N1'"),
        (("issue", "ca", "--region", "a"), "NODE ca"),
        (("issue", "n1", "--region", "a/b"), "--region 'a/b'"),
        (("issue", "n1", "--region", "a", "--days", "0"), "--days 0: allowed is"),
        (("renew", "n9"), "run prfaasctl certs issue n9 first"),
        (("init", "--rotate", "--retire"), "two steps"),
    ],
)
def test_errors_are_one_line(certs: Certs, arguments: tuple[str, ...], words: str) -> None:
    assert words in certs.fails(*arguments)


def test_damaged_files_are_named(certs: Certs) -> None:
    (certs.directory / "n1.crt").write_text("no certificate")
    assert "n1.crt: not a certificate" in certs.fails("show")
    (certs.directory / "ca.key").write_text("no key")
    assert "ca.key: not a private key" in certs.fails("verify")


def test_an_expired_or_foreign_certificate_does_not_pass(certs: Certs, tmp_path: Path) -> None:
    from prfaas_cli import x509
    from prfaas_cli.authority import Authority

    authority = Authority(certs.directory)
    ca, ca_key = authority.signer()
    key = x509.key_from_pem((certs.directory / "n1.key").read_bytes(), source="n1.key")
    subject = x509.Subject("prfaas://demo/a/n1", ())
    old = x509.new_certificate(subject, key, ca=ca, ca_key=ca_key, days=0)
    (certs.directory / "n1.crt").write_bytes(x509.certificates_to_pem([old]))
    assert "n1: expired" in certs.fails("verify")
    other_key = x509.new_key()
    other = x509.new_authority(other_key, "demo", days=9)
    foreign = x509.new_certificate(subject, key, ca=other, ca_key=other_key, days=9)
    (certs.directory / "n1.crt").write_bytes(x509.certificates_to_pem([foreign]))
    assert "n1: signed by no trusted CA" in certs.fails("verify")
