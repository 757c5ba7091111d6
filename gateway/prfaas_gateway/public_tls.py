"""TLS of the port for clients: the newest certificate, and no client certificates."""

import logging
import ssl
from pathlib import Path

from prfaas.api_section import ApiSection
from prfaas.errors import ConfigError

logger = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int], ...]


class PublicTls:
    """The certificate and key of `[api]`, read again when a file has changed.

    While new files do not fit together (a key is replaced before its certificate), the last ones
    that did stay in use. Raises: ConfigError: the first do not.
    """

    def __init__(self, section: ApiSection) -> None:
        self._files = (Path(section.cert), Path(section.key))
        self._told = ""
        try:
            self._signature = self._sign()
            self._newest = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._names()}: {_text(error)}") from None

    def context(self) -> ssl.SSLContext:
        """Return a context that hands every handshake over to the newest one.

        Raises:
            ConfigError: the files are not usable now.
        """
        try:
            context = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._names()}: {_text(error)}") from None
        context.sni_callback = self._take_newest
        return context

    def _take_newest(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        self._refresh()
        connection.context = self._newest

    def _refresh(self) -> None:
        try:
            signature = self._sign()
            if signature == self._signature:
                return
            self._newest = self._load()
        except (OSError, ValueError) as error:
            # Once for each thing that is wrong, not for each handshake: clients do not fill a disk.
            if _text(error) != self._told:
                self._told = _text(error)
                logger.warning("%s: %s; the last ones stay in use", self._names(), self._told)
            return
        self._signature, self._told = signature, ""
        logger.info("%s: reloaded", self._names())

    def _sign(self) -> _Signature:
        stats = [path.stat() for path in self._files]
        return tuple((s.st_mtime_ns, s.st_ino, s.st_size) for s in stats)

    def _load(self) -> ssl.SSLContext:
        cert, key = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(cert, key, password=_no_password)
        return context

    def _names(self) -> str:
        return "api.cert {}, api.key {}".format(*self._files)


def _no_password() -> str:
    """Refuse keys with a password: OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a password")


def _text(error: Exception) -> str:
    name = getattr(error, "filename", None)
    text = getattr(error, "strerror", None) or str(error)
    return f"{name}: {text}" if name else text
