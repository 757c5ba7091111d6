"""What protects the lanes of a node: TLS around their sockets, a secret in their frames."""

import secrets
import time
from pathlib import Path

from prfaas.config import SecurityMode, SecuritySection
from prfaas.errors import ConfigError
from prfaas.identity import Identity
from prfaas.transfer.capability import Secret, SecretReceiver, SecretSender
from prfaas.transfer.guard import ReceiverGuard, SenderGuard
from prfaas.transfer.layout import Layout
from prfaas_transport.channel import ChannelFactory, PlainChannels
from prfaas_transport.tls import TlsChannels
from prfaas_transport.tls_context import TlsContexts, TlsFiles


def tls_files(security: SecuritySection) -> TlsFiles:
    """Return the files that a section names."""
    return TlsFiles(ca=Path(security.ca), cert=Path(security.cert), key=Path(security.key))


def tls_contexts(security: SecuritySection) -> TlsContexts | None:
    """Return the contexts for HTTP, None without TLS. Raises: ConfigError."""
    return TlsContexts(tls_files(security)) if security.mode is SecurityMode.MTLS else None


def channel_factory(security: SecuritySection, identity: Identity | None) -> ChannelFactory:
    """Return what wraps the lanes' sockets. Raises: ConfigError if the files do not load."""
    if security.mode is not SecurityMode.MTLS:
        return PlainChannels()
    if identity is None:
        raise ConfigError("security.mode = mtls: the node's own identity is not known")
    return TlsChannels(
        tls_files(security),
        deployment=identity.deployment,
        max_lane_age_s=security.max_lane_age_s,
    )


def read_secret(security: SecuritySection) -> Secret | None:
    """Return the deployment's secrets, None where there are none. Raises: ConfigError."""
    path = security.secret_file
    if security.mode is SecurityMode.OFF or not path:
        return None
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"security.secret_file {path}: {reason}") from None
    return Secret.parse(text, source=f"security.secret_file {path}")


def sender_guard(
    secret: Secret | None, layout: Layout, *, node_id: str, session: int
) -> SenderGuard | None:
    """Return the guard of a sender; None trusts everyone."""
    if secret is None:
        return None
    return SecretSender(
        secret, node_id=node_id, session=session, digest=layout.digest(), clock=time.time
    ).guard()


def receiver_guard(secret: Secret | None, layout: Layout) -> ReceiverGuard | None:
    """Return the guard of a receiver; None trusts everyone."""
    if secret is None:
        return None
    return SecretReceiver(
        secret, digest=layout.digest(), clock=time.time, new_nonce=secrets.token_bytes
    ).guard()
