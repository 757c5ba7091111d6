"""How a node shows itself to etcd."""

import logging
import ssl
from pathlib import Path

import grpc

from prfaas.config import SecurityMode, SecuritySection
from prfaas.errors import ConfigError

log = logging.getLogger("prfaas.coord")


class EtcdCredentials:
    """A node's certificate for etcd, always that of the newest files.

    gRPC keeps what it is given, so a channel must be made anew when `renewed` gives others.
    Raises: ConfigError if the files cannot be read or do not fit together.
    """

    def __init__(self, security: SecuritySection) -> None:
        self._paths = [Path(path) for path in (security.ca, security.key, security.cert)]
        try:
            self._signature = self._sign()
            self.channel_credentials = self._load()
        except ssl.SSLError as error:
            raise ConfigError(f"security: {security.cert}: {error.reason or error}") from None
        except OSError as error:
            raise ConfigError(f"security: {error.filename}: {error.strerror}") from None

    def renewed(self) -> grpc.ChannelCredentials | None:
        """Return new credentials if the files have changed, else None.

        While new files do not fit together, the last ones that did stay in use.
        """
        try:
            signature = self._sign()
            if signature == self._signature:
                return None
            self.channel_credentials = self._load()
        except OSError as error:
            log.warning("certificate for etcd: %s; the last one stays in use", error)
            return None
        self._signature = signature
        log.info("certificate for etcd: reloaded")
        return self.channel_credentials

    def _sign(self) -> list[tuple[int, int, int]]:
        stats = [path.stat() for path in self._paths]
        return [(s.st_mtime_ns, s.st_ino, s.st_size) for s in stats]

    def _load(self) -> grpc.ChannelCredentials:
        ca, key, cert = self._paths
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(ca)
        context.load_cert_chain(cert, key)  # gRPC would say nothing of a key of another certificate
        return grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), cert.read_bytes())


def etcd_credentials(security: SecuritySection) -> EtcdCredentials | None:
    """Return the credentials for etcd, None without TLS. Raises: ConfigError."""
    return EtcdCredentials(security) if security.mode is SecurityMode.MTLS else None
