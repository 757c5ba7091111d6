"""What is wrong with a node's certificate or secret, found before anything starts."""

from pathlib import Path

from prfaas.config import NodeConfig, SecurityMode
from prfaas.errors import ConfigError
from prfaas_agent.sglang_args import identity_of


def security_problems(config: NodeConfig) -> list[str]:
    """Return every problem as one line; none where security is off."""
    security = config.security
    if security.mode is SecurityMode.OFF:
        return []
    from prfaas_transport.security import read_secret, tls_contexts

    try:
        tls_contexts(security)
        read_secret(security)
    except ConfigError as error:
        return [str(error)]
    found = [_open_problem(path) for path in (security.key, security.secret_file) if path]
    if security.mode is SecurityMode.MTLS:
        found += _certificate_problems(config)
    return [problem for problem in found if problem]


def _open_problem(path: str) -> str:
    if Path(path).stat().st_mode & 0o077:
        return f"{path} can be read by others; chmod 600 it"
    return ""


def _certificate_problems(config: NodeConfig) -> list[str]:
    """Check that others will take us for who we are, and reach us under our address."""
    from cryptography import x509

    path = Path(config.security.cert)
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return [f"{path} names nobody; issue it with prfaasctl certs issue"]
    names = extension.value
    identity, host = str(identity_of(config)), config.node.host
    found = []
    if identity not in names.get_values_for_type(x509.UniformResourceIdentifier):
        found.append(f"{path} is not of {identity}; issue one for this node")
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    if host not in [*addresses, *names.get_values_for_type(x509.DNSName)]:
        found.append(f"{path} does not name {host}; issue it with --address {host}")
    return found
