"""Certificates of a test's own deployment."""

from pathlib import Path

from prfaas_cli import x509
from prfaas_cli.authority import Authority
from prfaas_cli.pem_files import write_whole
from prfaas_transport.tls_context import TlsFiles

DEPLOYMENT = "demo"


class Certificates:
    """A CA in a directory, and what it issues."""

    def __init__(self, directory: Path, deployment: str = DEPLOYMENT) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(directory)
        self.authority.create(deployment, days=9)

    def node(self, name: str, *, region: str = "a", addresses: tuple[str, ...] = ()) -> TlsFiles:
        """Issue a node's certificate and return its files."""
        self.authority.issue(name, region=region, addresses=addresses, days=90)
        return self.files(name)

    def files(self, name: str) -> TlsFiles:
        """Return the files of a node."""
        return TlsFiles(
            ca=self.authority.bundle_file,
            cert=self.authority.certificate_file(name),
            key=self.authority.node_key_file(name),
        )

    def expire(self, name: str) -> None:
        """Replace a node's certificate by one that is valid no more."""
        ca, ca_key = self.authority.signer()
        found = self.authority.certificate_file(name)
        subject = x509.subject_of(x509.certificates_from_pem(found.read_bytes(), source="")[0])
        key_file = self.authority.node_key_file(name)
        key = x509.key_from_pem(key_file.read_bytes(), source="")
        made = x509.new_certificate(subject, key, ca=ca, ca_key=ca_key, days=0)
        write_whole(found, x509.certificates_to_pem([made]), mode=0o644)
