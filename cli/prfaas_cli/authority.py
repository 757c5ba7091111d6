"""The certificate directory of a deployment: its CA and what the CA issued.

    ca.crt       the CAs to trust: after `rotate` the new one and the old one
    ca.key       the key of the CA that signs now
    NODE.crt, NODE.key

Which of the CAs signs is told by `ca.key`; so a command that was cut short leaves nothing that the
next one cannot go on from. Every method that writes is to be called under `pem_files.locked`.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509 as certificates

from prfaas.errors import StateError
from prfaas_cli import x509
from prfaas_cli.pem_files import (
    CERTIFICATE_MODE,
    KEY_MODE,
    open_to_others,
    read_file,
    write_whole,
)

RENEW_BEFORE_DAYS = 30


@dataclass(frozen=True, slots=True)
class Authority:
    """One certificate directory."""

    directory: Path

    @property
    def bundle_file(self) -> Path:
        """The CAs to trust."""
        return self.directory / "ca.crt"

    @property
    def key_file(self) -> Path:
        """The signing key; nodes never need it."""
        return self.directory / "ca.key"

    def certificate_file(self, node: str) -> Path:
        """Return a node's certificate file."""
        return self.directory / f"{node}.crt"

    def node_key_file(self, node: str) -> Path:
        """Return a node's key file."""
        return self.directory / f"{node}.key"

    def nodes(self) -> list[str]:
        """Return the names of the nodes that have a certificate."""
        return sorted(p.stem for p in self.directory.glob("*.crt") if p.name != "ca.crt")

    def bundle(self) -> list[certificates.Certificate]:
        """Return the CAs to trust. Raises: StateError."""
        if not self.bundle_file.exists():
            raise StateError(f"{self.directory} has no CA; run prfaasctl certs init first")
        return x509.certificates_from_pem(read_file(self.bundle_file), source=str(self.bundle_file))

    def signer(self) -> tuple[certificates.Certificate, x509.Key]:
        """Return the CA that signs now, and its key. Raises: StateError."""
        bundle = self.bundle()
        key = x509.key_from_pem(read_file(self.key_file), source=str(self.key_file))
        for ca in bundle:
            if x509.is_key_of(key, ca):
                return ca, key
        raise StateError(f"{self.key_file} is the key of no CA in {self.bundle_file}")

    # What `init` does

    def create(self, deployment: str, *, days: int) -> bool:
        """Make the CA; return False if there is one for this deployment already.

        Raises: StateError: there is another one, or half of one.
        """
        if self.bundle_file.exists():
            found = x509.deployment_of(self.signer()[0])
            if found != deployment:
                raise StateError(
                    f"{self.bundle_file} is the CA of deployment {found}, not of {deployment};"
                    " use another directory"
                )
            return False
        if self.key_file.exists():
            raise StateError(f"{self.key_file} has no {self.bundle_file.name} beside it; remove it")
        self._write_signer(deployment, days=days, trusted=[])
        return True

    def rotate(self, *, days: int) -> None:
        """Make a new CA that signs from now on; the old ones stay trusted until `retire`."""
        deployment = x509.deployment_of(self.signer()[0])
        self._write_signer(deployment, days=days, trusted=self.bundle())

    def retire(self) -> int:
        """Trust only the CA that signs now; return how many are trusted no more.

        Raises: StateError: a node still has a certificate of an old one.
        """
        ca, _ = self.signer()
        late = [n for n in self.nodes() if not x509.is_signed_by(self._certificate(n), ca)]
        if late:
            raise StateError(
                f"{', '.join(late)}: signed by an old CA; run prfaasctl certs renew first"
            )
        dropped = len(self.bundle()) - 1
        if dropped:
            self._write_bundle([ca])
        return dropped

    def _write_signer(
        self, deployment: str, *, days: int, trusted: Sequence[certificates.Certificate]
    ) -> None:
        key = x509.new_key()
        ca = x509.new_authority(key, deployment, days=days)
        if trusted:
            # Until the key is there too, the old CA signs.
            self._write_bundle([ca, *trusted])
        write_whole(self.key_file, x509.key_to_pem(key), mode=KEY_MODE)
        if not trusted:
            self._write_bundle([ca])

    def _write_bundle(self, bundle: Sequence[certificates.Certificate]) -> None:
        write_whole(self.bundle_file, x509.certificates_to_pem(bundle), mode=CERTIFICATE_MODE)

    # What `issue` and `renew` do

    def issue(
        self, node: str, *, region: str, addresses: Sequence[str], days: int, new_key: bool = False
    ) -> bool:
        """Give a node its certificate; return False if it has a good one that says the same."""
        ca, _ = self.signer()
        identity = f"prfaas://{x509.deployment_of(ca)}/{region}/{node}"
        subject = x509.Subject(identity, _sorted(addresses))
        if not new_key and self._is_good(node, subject, RENEW_BEFORE_DAYS):
            return False
        self._sign(node, subject, days=days, new_key=new_key)
        return True

    def renew(self, node: str, *, before_days: float, days: int, new_key: bool = False) -> bool:
        """Sign a node's certificate anew if it ends soon or an old CA signed it.

        Raises: StateError: the node has none.
        """
        found = self._certificate(node)
        subject = x509.subject_of(found)
        if not new_key and self._is_good(node, subject, before_days):
            return False
        self._sign(node, subject, days=days, new_key=new_key)
        return True

    def _is_good(self, node: str, subject: x509.Subject, before_days: float) -> bool:
        if not self.certificate_file(node).exists() or not self.node_key_file(node).exists():
            return False
        found, (ca, _) = self._certificate(node), self.signer()
        says = x509.subject_of(found)
        return (
            (says.identity, _sorted(says.addresses)) == (subject.identity, subject.addresses)
            and x509.is_signed_by(found, ca)
            and x509.is_key_of(self._key(node), found)
            and x509.days_left(found) > before_days
        )

    def _sign(self, node: str, subject: x509.Subject, *, days: int, new_key: bool) -> None:
        """Write the key first: a certificate never waits for its key. A renewal keeps the key,
        so that the one file that changes changes in one step."""
        ca, ca_key = self.signer()
        path = self.node_key_file(node)
        if new_key or not path.exists():
            write_whole(path, x509.key_to_pem(x509.new_key()), mode=KEY_MODE)
        made = x509.new_certificate(subject, self._key(node), ca=ca, ca_key=ca_key, days=days)
        pem = x509.certificates_to_pem([made])
        write_whole(self.certificate_file(node), pem, mode=CERTIFICATE_MODE)

    def _certificate(self, node: str) -> certificates.Certificate:
        path = self.certificate_file(node)
        if not path.exists():
            raise StateError(f"{path} does not exist; run prfaasctl certs issue {node} first")
        return x509.certificates_from_pem(read_file(path), source=str(path))[0]

    def _key(self, node: str) -> x509.Key:
        path = self.node_key_file(node)
        return x509.key_from_pem(read_file(path), source=str(path))

    # What `show` and `verify` do

    def describe(self) -> dict[str, Any]:
        """Return everything there is, as JSON values. Raises: StateError."""
        ca, _ = self.signer()
        return {
            "directory": str(self.directory),
            "deployment": x509.deployment_of(ca),
            "authorities": [
                {**_describe(found), "signs": found == ca, "name": _common_name(found)}
                for found in self.bundle()
            ],
            "certificates": [self._describe_node(node) for node in self.nodes()],
        }

    def _describe_node(self, node: str) -> dict[str, Any]:
        found = self._certificate(node)
        subject = x509.subject_of(found)
        return {
            "node": node,
            **_describe(found),
            "identity": subject.identity,
            "addresses": list(subject.addresses),
            "problems": self.problems(node),
        }

    def problems(self, node: str) -> list[str]:
        """Return what is wrong with a node's certificate and key, in words."""
        found, path = self._certificate(node), self.node_key_file(node)
        identity = x509.subject_of(found).identity
        deployment = x509.deployment_of(self.signer()[0])
        checks = (
            (any(x509.is_signed_by(found, ca) for ca in self.bundle()), "signed by no trusted CA"),
            (x509.days_left(found) > 0, "expired"),
            (
                identity.startswith(f"prfaas://{deployment}/") and identity.endswith(f"/{node}"),
                f"its identity is {identity or 'missing'}",
            ),
            (path.exists(), f"{path.name} is missing"),
        )
        wrong = [text for good, text in checks if not good]
        return wrong + (self._key_problems(node, found) if path.exists() else [])

    def _key_problems(self, node: str, found: certificates.Certificate) -> list[str]:
        path = self.node_key_file(node)
        wrong = [] if x509.is_key_of(self._key(node), found) else [f"{path.name} is another key"]
        return wrong + ([f"{path.name} is open to others"] if open_to_others(path) else [])

    def verify(self) -> list[str]:
        """Return everything that is wrong, in words; empty when nothing is. Raises: StateError."""
        wrong = [f"{_common_name(ca)}: expired" for ca in self.bundle() if x509.days_left(ca) <= 0]
        self.signer()
        if open_to_others(self.key_file):
            wrong.append(f"{self.key_file.name} is open to others")
        return wrong + [f"{node}: {text}" for node in self.nodes() for text in self.problems(node)]


def _describe(found: certificates.Certificate) -> dict[str, Any]:
    return {
        "serial": f"{found.serial_number:x}",
        "not_after": found.not_valid_after_utc.astimezone(datetime.UTC).isoformat(),
        "days_left": round(x509.days_left(found), 2),
    }


def _common_name(ca: certificates.Certificate) -> str:
    return ca.subject.rfc4514_string()


def _sorted(addresses: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(addresses)))
