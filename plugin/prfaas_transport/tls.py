"""Lanes inside mutual TLS 1.3.

A peer is whom its certificate names, not whom it says it is: `TlsChannel.identity`.

OpenSSL encrypts and writes one record of at most 16 KiB per call, and decrypts one per call; that
was measured faster than encrypting into memory and writing that (docs/security.md).
"""

import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from prfaas.identity import Identity
from prfaas_transport.tls_context import TlsContexts, TlsFiles, identity_of, kernel_has_tls

log = logging.getLogger("prfaas.transport")

RECORD_BYTES = 16 << 10
MAX_HANDSHAKES = 256
"""Accepted connections that may be in their handshake at a time."""
_NO_BYTES = memoryview(b"")


class TlsReason(StrEnum):
    """Why a lane was refused: a label of a counter and the first word of the lane's end."""

    CERTIFICATE_EXPIRED = "tls_certificate_expired"
    CERTIFICATE_UNTRUSTED = "tls_certificate_untrusted"
    HANDSHAKE_CLOSED = "tls_handshake_closed"
    HANDSHAKE_FAILED = "tls_handshake_failed"
    IDENTITY_MISMATCH = "tls_identity_mismatch"
    LANE_AGE = "tls_lane_age"
    NO_CERTIFICATE = "tls_no_certificate"
    NOT_TLS = "tls_not_tls"
    REFUSED_BY_PEER = "tls_refused_by_peer"
    TOO_MANY_HANDSHAKES = "tls_too_many_handshakes"
    VERSION = "tls_version"


class TlsRefusedError(ConnectionError):
    """A lane that must not be used; `str()` begins with the reason."""

    def __init__(self, reason: TlsReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason


class TlsChannels:
    """Makes the channels of one node; `wrap` is called on its I/O thread.

    Connections made from now on use the newest files. Dialled ones are closed, one by one, when
    they are older than `max_lane_age_s`: the lane is dialled anew, and rooms go on over the others.
    Raises: ConfigError if the files do not load.
    """

    def __init__(
        self, files: TlsFiles, *, deployment: str, max_lane_age_s: float = 86400.0
    ) -> None:
        self.ktls = kernel_has_tls()
        self.max_lane_age_s = max_lane_age_s
        self.deployment = deployment
        self.refused: Counter[str] = Counter()
        self.handshakes = 0
        self._contexts = TlsContexts(files, ktls=self.ktls)
        self._half_open: set[TlsChannel] = set()

    def wrap(self, sock: socket.socket, *, server_side: bool) -> "TlsChannel":
        """Return the channel of a connection. Raises: TlsRefusedError."""
        if server_side and len(self._half_open) >= MAX_HANDSHAKES:
            self.refused[TlsReason.TOO_MANY_HANDSHAKES] += 1
            raise TlsRefusedError(TlsReason.TOO_MANY_HANDSHAKES)
        make_context = self._contexts.server if server_side else self._contexts.client
        channel = TlsChannel(self, sock, make_context, server_side=server_side)
        if server_side:
            self._half_open.add(channel)
        return channel

    def stats(self) -> dict[str, Any]:
        """Return JSON-able counters."""
        return {
            "ktls": self.ktls,
            "handshakes_total": self.handshakes,
            "handshakes_open": len(self._half_open),
            "lanes_refused_total": dict(self.refused),
            "reloads_total": self._contexts.reloads,
            "failed_reloads_total": self._contexts.failed_reloads,
        }

    def refuse(self, channel: "TlsChannel", reason: TlsReason, detail: str) -> TlsRefusedError:
        """Count a refusal and return its error."""
        self._half_open.discard(channel)
        self.refused[reason] += 1
        return TlsRefusedError(reason, detail)

    def finish(self, channel: "TlsChannel") -> None:
        """A handshake is done, or its connection is gone."""
        self._half_open.discard(channel)


class TlsChannel:
    """One connection; see `Channel`. `identity` is None until the handshake is done."""

    def __init__(
        self,
        owner: TlsChannels,
        sock: socket.socket,
        make_context: Callable[[], ssl.SSLContext],
        *,
        server_side: bool,
    ) -> None:
        self.identity: Identity | None = None
        self._owner = owner
        self._sock = sock
        self._make_context = make_context
        self._server_side = server_side
        self._tls: ssl.SSLSocket | None = None
        self._began_s = 0.0
        self._in_handshake_wants_write = False
        self._record = bytearray(RECORD_BYTES)
        #: The record that OpenSSL has taken and the socket has not; it stays as it is until then.
        self._held = _NO_BYTES
        self.fileno = sock.fileno

    # Handshake

    def handshake(self, now: float) -> bool:
        """Go on with the handshake. Raises: TlsRefusedError."""
        if self.identity is not None:
            return True
        try:
            tls = self._open(now)
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._in_handshake_wants_write = False
            return False
        except ssl.SSLWantWriteError:
            self._in_handshake_wants_write = True
            return False
        except OSError as error:
            raise self._refusal(error) from None
        self._in_handshake_wants_write = False
        self.identity = self._check_identity(tls)
        self._owner.handshakes += 1
        self._owner.finish(self)
        return True

    def _open(self, now: float) -> ssl.SSLSocket:
        """Wrap a second descriptor of the connection: `SSLSocket` takes the one it is given."""
        if self._tls is None:
            self._began_s = now
            twin = self._sock.dup()
            twin.setblocking(False)
            try:
                self._tls = self._make_context().wrap_socket(
                    twin, server_side=self._server_side, do_handshake_on_connect=False
                )
            except OSError:
                twin.close()
                raise
        return self._tls

    def _check_identity(self, tls: ssl.SSLSocket) -> Identity:
        identity = identity_of(tls.getpeercert())
        if identity is None or identity.deployment != self._owner.deployment:
            detail = f"the peer is {identity or 'nobody we know'}"
            raise self._owner.refuse(self, TlsReason.IDENTITY_MISMATCH, detail)
        return identity

    def check_node_id(self, node_id: str) -> None:
        """Check that the peer may call itself so. Raises: TlsRefusedError."""
        if self.identity is None or not self.identity.speaks_for(node_id):
            detail = f"{self.identity} calls itself {node_id}"
            raise self._owner.refuse(self, TlsReason.IDENTITY_MISMATCH, detail)

    def _refusal(self, error: OSError) -> TlsRefusedError:
        return self._owner.refuse(self, _reason_of(error), _detail_of(error))

    # Bytes

    def wants_write(self) -> bool:
        """Say whether a record waits for the socket."""
        return bool(self._held) or self._in_handshake_wants_write

    def send(self, views: list[memoryview]) -> int:
        """Encrypt and write, record by record, until the socket is full."""
        assert self._tls is not None
        if not self._flush(self._tls):
            raise BlockingIOError
        num_bytes = 0
        for record in _records(views, self._record, stage_all=self._owner.ktls):
            self._held = record
            num_bytes += len(record)
            if not self._flush(self._tls):
                break
        return num_bytes

    def _flush(self, tls: ssl.SSLSocket) -> bool:
        """Write the held record; return whether it went out.

        Once OpenSSL said that it must wait, the record lies encrypted in its own buffer, and only
        its length counts; what `_held` keeps then must not alias memory that may change.
        """
        if not self._held:
            return True
        try:
            tls.send(self._held)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if self._held.obj is not self._record:
                self._held = memoryview(self._record)[: len(self._held)]
            return False
        except ssl.SSLError as error:
            raise self._refusal(error) from None
        self._held = _NO_BYTES
        return True

    def receive_into(self, views: list[memoryview]) -> int:
        """Decrypt into the views until they are full or nothing is left to read."""
        assert self._tls is not None
        num_bytes = 0
        try:
            for view in views:
                at = 0
                while at < len(view):
                    got = self._tls.recv_into(view[at:])
                    if not got:
                        return num_bytes
                    at += got
                    num_bytes += got
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not num_bytes:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            # In TLS 1.3 a client learns only now that the server refused its certificate.
            raise self._refusal(error) from None
        return num_bytes

    def outdated(self, now: float) -> str:
        """Return why the connection is to be dialled anew with the newest certificate."""
        is_old = now - self._began_s >= self._owner.max_lane_age_s
        return TlsReason.LANE_AGE if is_old and not self._server_side else ""

    def pending(self) -> bool:
        """Say whether decrypted bytes wait that the socket no longer has."""
        return self._tls is not None and self._tls.pending() > 0

    def close(self) -> None:
        """Close both descriptors; nothing more is written."""
        self._owner.finish(self)
        if self._tls is not None:
            self._tls.close()
        self._sock.close()


def _records(views: list[memoryview], stage: bytearray, *, stage_all: bool) -> Any:
    """Yield the views' bytes in records: large views as they are, small ones gathered in `stage`.

    With kTLS the kernel reads the record itself, also later: then it must be our memory.
    """
    filled = 0
    for view in views:
        at = 0
        while at < len(view):
            if not filled and not stage_all and len(view) - at >= RECORD_BYTES:
                yield view[at : at + RECORD_BYTES]
                at += RECORD_BYTES
                continue
            size = min(RECORD_BYTES - filled, len(view) - at)
            stage[filled : filled + size] = view[at : at + size]
            filled, at = filled + size, at + size
            if filled == RECORD_BYTES:
                yield memoryview(stage)
                filled = 0
    if filled:
        yield memoryview(stage)[:filled]


_REASONS = {
    "HTTP_REQUEST": TlsReason.NOT_TLS,
    "WRONG_VERSION_NUMBER": TlsReason.NOT_TLS,
    "RECORD_LAYER_FAILURE": TlsReason.NOT_TLS,
    "BAD_RECORD_TYPE": TlsReason.NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": TlsReason.NOT_TLS,
    "UNSUPPORTED_PROTOCOL": TlsReason.VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": TlsReason.VERSION,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": TlsReason.NO_CERTIFICATE,
}
_X509_V_ERR_CERT_HAS_EXPIRED = 10
_X509_V_ERR_CERT_NOT_YET_VALID = 9


def _reason_of(error: OSError) -> TlsReason:
    if isinstance(error, ssl.SSLCertVerificationError):
        dates = (_X509_V_ERR_CERT_HAS_EXPIRED, _X509_V_ERR_CERT_NOT_YET_VALID)
        is_date = error.verify_code in dates
        return TlsReason.CERTIFICATE_EXPIRED if is_date else TlsReason.CERTIFICATE_UNTRUSTED
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or not isinstance(error, ssl.SSLError):
        return TlsReason.HANDSHAKE_CLOSED
    name = error.reason or ""
    if name in _REASONS:
        return _REASONS[name]
    return TlsReason.REFUSED_BY_PEER if "_ALERT_" in name else TlsReason.HANDSHAKE_FAILED


def _detail_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    return str(getattr(error, "reason", None) or error.strerror or error)
