"""The API keys in force: those of the newest keys file that is one."""

import asyncio
import hmac
import logging
from pathlib import Path

from prfaas.api_keys import KeysFile, key_digest, parse_keys
from prfaas.errors import ConfigError
from prfaas_gateway.client_key import ClientKey

logger = logging.getLogger(__name__)

CHECK_S = 0.5
"""How old the last look at the file may be."""
_MAX_BYTES = 64 << 20
_Signature = tuple[int, int, int]


class KeyBook:
    """Finds the holder of a key. One event loop only.

    While a new file is not a keys file, the last one that was stays in use. Who had a key keeps
    what it used of its limits, as long as these do not change.

    Raises: ConfigError: the first file is not a keys file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clients: dict[str, ClientKey] = {}
        self._signature: _Signature | None = None
        self._checked_s = _now_s()
        try:
            self._signature = self._sign()
            self._load()
        except OSError as error:
            raise ConfigError(f"api.keys_file {path}: {error.strerror}") from None

    def find(self, key: str) -> ClientKey | None:
        """Return the holder of a key, None if nobody has it."""
        self._refresh()
        digest = key_digest(key)
        client = self._clients.get(digest)
        # The dictionary compares digests, whose timing tells nothing of a key; this does not hurt.
        if client is None or not hmac.compare_digest(client.entry.sha256, digest):
            return None
        return client

    def _refresh(self) -> None:
        now_s = _now_s()
        if now_s - self._checked_s < CHECK_S:
            return
        self._checked_s = now_s
        try:
            signature = self._sign()
            if signature == self._signature:
                return
            self._signature = signature
            self._load()
        except OSError as error:
            # Once, not twice a second: it may be away for as long as it likes.
            if self._signature is not None:
                logger.warning("%s: %s; the last keys stay in use", self._path, error.strerror)
            self._signature = None
        except ConfigError as error:
            logger.warning("%s; the last keys stay in use", error)
        else:
            logger.info("%s: %d keys in use", self._path, len(self._clients))

    def _sign(self) -> _Signature:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _load(self) -> None:
        if not self._path.is_file():
            raise ConfigError(f"{self._path}: not a file")  # a pipe would be waited for
        if self._path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{self._path}: larger than {_MAX_BYTES} bytes")
        try:
            text = self._path.read_text()
        except UnicodeDecodeError:
            raise ConfigError(f"{self._path}: not UTF-8 text") from None
        self._use(parse_keys(text, source=str(self._path)))

    def _use(self, found: KeysFile) -> None:
        before = self._clients
        self._clients = {}
        for name, entry in found.keys.items():
            known = before.get(entry.sha256)
            same = known is not None and (known.name, known.entry) == (name, entry)
            self._clients[entry.sha256] = known if known and same else ClientKey(name, entry)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
