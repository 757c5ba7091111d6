"""The certificates or the secret of an emulated deployment, and who is given which."""

import secrets
import ssl
from collections.abc import Sequence

from prfaas.config import NodeConfig, SecurityMode, SecuritySection
from prfaas_cli.deploy_gateway import API_ADDRESSES, API_CERTIFICATE
from prfaas_cli.options import DeployOptions
from prfaas_cli.pem_files import KEY_MODE, locked, write_whole
from prfaas_cli.place import Place

OPERATOR = "operator"
"""Whose certificate prfaasctl itself shows."""
_SECRET_BYTES = 32
_CA_DAYS, _NODE_DAYS = 3650, 365


def security_section(place: Place, options: DeployOptions, node: str) -> SecuritySection:
    """Return what a node's configuration says."""
    mode = SecurityMode(options.security)
    if mode is SecurityMode.SECRET:
        return SecuritySection(mode, secret_file=str(place.secret_file))
    if mode is SecurityMode.OFF:
        return SecuritySection()
    cert, key = (str(place.certificates / f"{node}.{end}") for end in ("crt", "key"))
    return SecuritySection(mode, str(place.certificates / "ca.crt"), cert, key)


def write_credentials(
    place: Place, options: DeployOptions, nodes: Sequence[NodeConfig], *, etcd: str
) -> None:
    """Make what is missing; what is there stays. Raises: StateError."""
    mode = SecurityMode(options.security)
    if mode is SecurityMode.SECRET and not place.secret_file.exists():
        secret = secrets.token_hex(_SECRET_BYTES).encode()
        write_whole(place.secret_file, secret + b"\n", mode=KEY_MODE)
    if mode is SecurityMode.MTLS:
        _issue(place, nodes, etcd=etcd)
    if options.tls:
        _issue_api(place, options.home)


def _issue_api(place: Place, region: str) -> None:
    """Make the certificate of the port for clients."""
    from prfaas_cli.authority import Authority

    authority = Authority(place.certificates)
    with locked(place.certificates):
        authority.create(place.name, days=_CA_DAYS)
        authority.issue(API_CERTIFICATE, region=region, addresses=API_ADDRESSES, days=_NODE_DAYS)


def _issue(place: Place, nodes: Sequence[NodeConfig], *, etcd: str) -> None:
    from prfaas_cli.authority import Authority

    authority = Authority(place.certificates)
    with locked(place.certificates):
        authority.create(place.name, days=_CA_DAYS)
        for node in (config.node for config in nodes):
            addresses = [node.host, "127.0.0.1"]
            authority.issue(node.name, region=node.region, addresses=addresses, days=_NODE_DAYS)
        second = nodes[-1].node
        for name in (etcd, OPERATOR):
            addresses = [second.host, "127.0.0.1"]
            authority.issue(name, region=second.region, addresses=addresses, days=_NODE_DAYS)


def operator_context(place: Place, options: DeployOptions) -> ssl.SSLContext | None:
    """Return what prfaasctl connects with; None where there is no TLS, or no certificate yet."""
    if SecurityMode(options.security) is not SecurityMode.MTLS:
        return None
    section = security_section(place, options, OPERATOR)
    try:
        context = ssl.create_default_context(cafile=section.ca)
        context.load_cert_chain(section.cert, section.key)
    except OSError:
        return None
    return context
