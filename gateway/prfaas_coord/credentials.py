"""How a node shows itself to etcd."""

from pathlib import Path

import grpc

from prfaas.config import SecurityMode, SecuritySection
from prfaas.errors import ConfigError


def channel_credentials(security: SecuritySection) -> grpc.ChannelCredentials | None:
    """Return the credentials for etcd, None without TLS.

    gRPC keeps what it is given: a process shows etcd a new certificate after its next start.

    Raises:
        ConfigError: a file cannot be read.
    """
    if security.mode is not SecurityMode.MTLS:
        return None
    try:
        ca, key, cert = (Path(p).read_bytes() for p in (security.ca, security.key, security.cert))
    except OSError as error:
        raise ConfigError(f"security: {error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(ca, key, cert)
