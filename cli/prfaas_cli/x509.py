"""Make and read the certificates of a deployment. No files here.

A certificate's identity is the URI `prfaas://<deployment>/<region>/<node>` among its subject
alternative names; the node's addresses stand beside it, for clients that connect by address.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from prfaas.errors import StateError

Key = ec.EllipticCurvePrivateKey

#: Clocks of regions differ.
_BACKDATED = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a certificate is for; `addresses` are IP addresses or DNS names."""

    identity: str
    addresses: tuple[str, ...]


def new_key() -> Key:
    """Return a fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: Key) -> bytes:
    """Return the key as unencrypted PKCS 8."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_from_pem(data: bytes, *, source: str) -> Key:
    """Return the key of a PEM text. Raises: StateError naming `source`."""
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise StateError(f"{source}: not a private key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(f"{source}: not an elliptic curve key")
    return key


def certificates_to_pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """Return certificates one after another."""
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def certificates_from_pem(data: bytes, *, source: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, at least one. Raises: StateError naming `source`."""
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise StateError(f"{source}: not a certificate: {error}") from None


def new_authority(key: Key, deployment: str, *, days: int) -> x509.Certificate:
    """Return a self-signed CA certificate; its organization is the deployment."""
    digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, deployment),
            x509.NameAttribute(NameOID.COMMON_NAME, f"prfaas CA {digest.digest.hex()[:8]}"),
        ]
    )
    usage = _key_usage(signs_certificates=True)
    return (
        _builder(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(digest, critical=False)
        .sign(key, hashes.SHA256())
    )


def new_certificate(
    subject: Subject, key: Key, *, ca: x509.Certificate, ca_key: Key, days: int
) -> x509.Certificate:
    """Return a node's certificate, good for both ends of a connection."""
    node = subject.identity.rpartition("/")[2]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(subject.identity)]
    names += [_general_name(address) for address in subject.addresses]
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    own_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(name, ca.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer_key, critical=False)
        .add_extension(own_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def subject_of(certificate: x509.Certificate) -> Subject:
    """Return who a certificate is for; the identity is empty where it has none of ours."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return Subject("", ())
    names = extension.value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    addresses = [str(value) for value in names.get_values_for_type(x509.IPAddress)]
    addresses += names.get_values_for_type(x509.DNSName)
    return Subject(next((u for u in uris if u.startswith("prfaas://")), ""), tuple(addresses))


def deployment_of(ca: x509.Certificate) -> str:
    """Return the deployment that a CA is for, empty if it does not say."""
    found = ca.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else ""


def is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Say whether `ca` signed the certificate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_key_of(key: Key, certificate: x509.Certificate) -> bool:
    """Say whether the certificate holds this key's public half."""
    return key.public_key() == certificate.public_key()


def days_left(certificate: x509.Certificate) -> float:
    """Return the days until a certificate expires, negative if it has."""
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left.total_seconds() / 86400


def _builder(subject: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
