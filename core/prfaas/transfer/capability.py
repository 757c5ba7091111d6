"""Peers and rooms proven by a secret that all nodes of a deployment share.

HELLO shows a time, a nonce and an HMAC over the whole frame; WELCOME an HMAC over that and over who
answers; OPEN an expiry and an HMAC over the frame and whose it is. So a stranger gets no lane and
no room, and what it recorded is of no use to it:

* a HELLO is taken once, and only for `SKEW_S` around its time, by a sender that was running then;
* a WELCOME fits one nonce;
* an OPEN holds between one session of a receiver and one of a sender, and not after it expires.

It does not protect bytes from someone on the path, who can change them or take the connection over
after the handshake. Mutual TLS does. Source: HMAC-SHA256 is RFC 2104 with FIPS 180-4.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prfaas.errors import ConfigError
from prfaas.transfer.guard import Party, ReceiverGuard, SenderGuard
from prfaas.transfer.memo import Memo
from prfaas.transfer.reasons import Reason
from prfaas.wire import Hello, Open, Welcome, encode

SKEW_S = 60.0
"""How far the clocks of two nodes may be apart."""
_START_SLACK_S = 2.0
MIN_SECRET_BYTES = 32
NONCE_BYTES = 16
_MAC_BYTES = 32
_MAX_NONCES = 1 << 16
_STAMP = struct.Struct(f"!Q{NONCE_BYTES}s")
_EXPIRY = struct.Struct("!Q")
_WHO = struct.Struct("!QI")

Clock = Callable[[], float]


@dataclass(frozen=True)
class Secret:
    """The secrets of a deployment: the first one signs, any of them is accepted.

    Raises: ConfigError if there is none or one is shorter than `MIN_SECRET_BYTES`.
    """

    keys: Sequence[bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.keys or any(len(key) < MIN_SECRET_BYTES for key in self.keys):
            raise ConfigError(f"a secret needs {MIN_SECRET_BYTES} bytes or more")

    @classmethod
    def parse(cls, text: str, *, source: str) -> "Secret":
        """Return the secrets in a file's text, one a line. Raises: ConfigError naming `source`."""
        try:
            return cls([line.strip().encode() for line in text.splitlines() if line.strip()])
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}; one secret a line") from None

    def sign(self, purpose: bytes, *parts: bytes) -> bytes:
        """Return the MAC of `parts` for one purpose."""
        return _mac(self.keys[0], purpose, parts)

    def is_signed(self, mac: bytes, purpose: bytes, *parts: bytes) -> bool:
        """Say whether one of the secrets made this MAC; takes as long whatever it is."""
        found = [hmac.compare_digest(mac, _mac(key, purpose, parts)) for key in self.keys]
        return any(found)


def _mac(key: bytes, purpose: bytes, parts: Sequence[bytes]) -> bytes:
    """Every part goes in with its length, so that no two lists of parts look alike."""
    made = hmac.new(key, b"prfaas/2/" + purpose, hashlib.sha256)
    for part in parts:
        made.update(struct.pack("!I", len(part)))
        made.update(part)
    return made.digest()


class SecretSender:
    """What a sender checks; `clock` is the wall clock in seconds."""

    def __init__(
        self, secret: Secret, *, node_id: str, session: int, digest: bytes, clock: Clock
    ) -> None:
        self._secret = secret
        self._who = _who(node_id, session)
        self._digest = digest
        self._clock = clock
        self._started_s = clock()
        self._nonces: Memo[bytes, bool] = Memo(_MAX_NONCES)

    def guard(self) -> SenderGuard:
        """Return the guard for the machine."""
        return SenderGuard(answer=self.answer, admit=self.admit)

    def answer(self, hello: Hello) -> bytes | None:
        """Return the proof for WELCOME, or None if HELLO's does not hold or was used before."""
        stamp, mac = hello.auth[: _STAMP.size], hello.auth[_STAMP.size :]
        if len(mac) != _MAC_BYTES:
            return None
        if not self._secret.is_signed(mac, b"hello", encode(replace(hello, auth=stamp))):
            return None
        issued_ms, nonce = _STAMP.unpack(stamp)
        if not self._is_fresh(issued_ms / 1000) or self._nonces.get(nonce):
            return None
        self._nonces.put(nonce, True)
        return self._secret.sign(b"welcome", hello.auth, self._who, self._digest)

    def _is_fresh(self, issued_s: float) -> bool:
        earliest_s = max(self._clock() - SKEW_S, self._started_s - _START_SLACK_S)
        return earliest_s <= issued_s <= self._clock() + SKEW_S

    def admit(self, node_id: str, session: int, frame: Open) -> str:
        """Return "" or why the room's capability does not hold."""
        expiry, mac = frame.capability[: _EXPIRY.size], frame.capability[_EXPIRY.size :]
        signed = encode(replace(frame, capability=expiry))
        parts = (_who(node_id, session), self._who, self._digest, signed)
        if len(mac) != _MAC_BYTES or not self._secret.is_signed(mac, b"open", *parts):
            return Reason.CAPABILITY_INVALID
        (expires_ms,) = _EXPIRY.unpack(expiry)
        return Reason.CAPABILITY_EXPIRED if self._clock() * 1000 > expires_ms else ""


class SecretReceiver:
    """What a receiver shows; `clock` is the wall clock in seconds, `new_nonce` is random."""

    def __init__(
        self, secret: Secret, *, digest: bytes, clock: Clock, new_nonce: Callable[[int], bytes]
    ) -> None:
        self._secret = secret
        self._digest = digest
        self._clock = clock
        self._new_nonce = new_nonce

    def guard(self) -> ReceiverGuard:
        """Return the guard for the machine."""
        return ReceiverGuard(greet=self.greet, trust=self.trust, capability=self.capability)

    def greet(self, hello: Hello) -> bytes:
        """Return the proof for a HELLO; another one every time."""
        stamp = _STAMP.pack(int(self._clock() * 1000), self._new_nonce(NONCE_BYTES))
        return stamp + self._secret.sign(b"hello", encode(replace(hello, auth=stamp)))

    def trust(self, hello: Hello, welcome: Welcome) -> bool:
        """Say whether the WELCOME to our HELLO comes from someone who knows the secret."""
        who = _who(welcome.node_id, welcome.session)
        return self._secret.is_signed(welcome.auth, b"welcome", hello.auth, who, self._digest)

    def capability(self, receiver: Party, sender: Party, frame: Open) -> bytes:
        """Return the capability of a room; it ends with the room's deadline."""
        expires_s = self._clock() + frame.deadline_ms / 1000 + SKEW_S
        expiry = _EXPIRY.pack(int(expires_s * 1000))
        signed = encode(replace(frame, capability=expiry))
        parts = (_who(*receiver), _who(*sender), self._digest, signed)
        return expiry + self._secret.sign(b"open", *parts)


def _who(node_id: str, session: int) -> bytes:
    name = node_id.encode()
    return _WHO.pack(session, len(name)) + name
