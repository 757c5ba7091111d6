"""TLS contexts of a node: mutual, TLS 1.3 only, and always those of the newest files."""

import logging
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prfaas.errors import ConfigError
from prfaas.identity import SCHEME, Identity

log = logging.getLogger("prfaas.transport")

_TCP_ULP = 31
#: SSL_OP_ENABLE_KTLS of OpenSSL 3; Python names it from 3.12 on.
_OP_ENABLE_KTLS = 1 << 3


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the CAs to trust, a node's certificate and its key."""

    ca: Path
    cert: Path
    key: Path

    def signature(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes whenever a file is replaced or written. Raises: OSError."""
        stats = [path.stat() for path in (self.ca, self.cert, self.key)]
        return tuple((s.st_mtime_ns, s.st_ino, s.st_size) for s in stats)


class TlsContexts:
    """The contexts for either side of a connection, remade when a file has changed.

    While new files do not fit together (a key is replaced before its certificate), the last ones
    that did stay in use. May be called from any thread. Raises: ConfigError if the first do not.
    """

    def __init__(self, files: TlsFiles, *, ktls: bool = False) -> None:
        self.files = files
        self.reloads = 0
        self.failed_reloads = 0
        self._ktls = ktls
        self._lock = threading.Lock()
        try:
            self._signature = files.signature()
            self._load()
        except (OSError, ValueError) as error:
            raise ConfigError(f"TLS files {_names(files)}: {_text(error)}") from None

    def client(self) -> ssl.SSLContext:
        """Return the context for lanes that we dial: the identity is the caller's to check."""
        with self._lock:
            self._refresh()
            return self._client

    def http_client(self) -> ssl.SSLContext:
        """Return the context for requests: the server's certificate must name its address."""
        with self._lock:
            self._refresh()
            return self._http_client

    def server(self) -> ssl.SSLContext:
        """Return the context for connections that we accept."""
        with self._lock:
            self._refresh()
            return self._server

    def new_server(self) -> ssl.SSLContext:
        """Return a context like `server()` that is the caller's to change."""
        return self._make(ssl.PROTOCOL_TLS_SERVER)

    def _refresh(self) -> None:
        try:
            signature = self.files.signature()
            if signature == self._signature:
                return
            self._load()
        except (OSError, ValueError) as error:
            self.failed_reloads += 1
            log.warning("TLS files %s: %s; the last ones stay in use", _names(self.files), error)
            return
        self._signature = signature
        self.reloads += 1
        log.info("TLS files %s: reloaded", _names(self.files))

    def _load(self) -> None:
        client, http_client = (self._make(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
        http_client.check_hostname = True
        server = self._make(ssl.PROTOCOL_TLS_SERVER)
        self._client, self._http_client, self._server = client, http_client, server

    def _make(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        # Lanes' peers are known by the identity in their certificate, not by an address.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.files.ca)
        context.load_cert_chain(self.files.cert, self.files.key)
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # lanes live for hours: there is nothing to resume
        if self._ktls:
            context.options |= _OP_ENABLE_KTLS
        return context


def identity_of(certificate: dict[str, Any] | None) -> Identity | None:
    """Return the identity in what `getpeercert()` gave; None if it holds none of ours."""
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        if kind == "URI" and value.startswith(SCHEME):
            try:
                return Identity.parse(value)
            except ConfigError:
                return None
    return None


def kernel_has_tls() -> bool:
    """Say whether this kernel encrypts TLS records itself (CONFIG_TLS)."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as probe,
        ):
            probe.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
    except OSError:
        return False
    return True


def _names(files: TlsFiles) -> str:
    return f"{files.ca}, {files.cert}, {files.key}"


def _text(error: Exception) -> str:
    """Return why, and of which file where that is known."""
    name = getattr(error, "filename", None)
    text = getattr(error, "strerror", None) or str(error)
    return f"{name}: {text}" if name else text
