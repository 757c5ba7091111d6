"""The shared secret: what a stranger forges, replays or changes is refused."""

import itertools
from dataclasses import replace

import pytest

from prfaas.errors import ConfigError
from prfaas.transfer.capability import SKEW_S, Secret, SecretReceiver, SecretSender
from prfaas.wire import Hello, Open, Welcome

SECRET = Secret([b"s" * 32])
OTHER = Secret([b"o" * 32])
DIGEST = b"d" * 32
HELLO = Hello("decode/0", 11, 0, 4, DIGEST, (("kv", (64,)),), 1)
OPEN = Open(77, 3, 5000, 16, (10, 1))


class Pair:
    """A sender and a receiver with one clock."""

    def __init__(self, sender: Secret = SECRET, receiver: Secret = SECRET) -> None:
        self.now_s = 1000.0
        self.receiver = receiver
        self.sender_secret = sender
        self._numbers = itertools.count()
        self.shows = SecretReceiver(
            receiver,
            digest=DIGEST,
            clock=self.clock,
            new_nonce=lambda size: next(self._numbers).to_bytes(size, "big"),
        )
        self.checks = self.new_sender()

    def clock(self) -> float:
        return self.now_s

    def new_sender(self, session: int = 22, digest: bytes = DIGEST) -> SecretSender:
        secret = self.sender_secret
        return SecretSender(
            secret, node_id="prefill/0", session=session, digest=digest, clock=self.clock
        )

    def hello(self) -> Hello:
        return replace(HELLO, auth=self.shows.greet(HELLO))

    def open(self, frame: Open = OPEN, session: int = 11) -> Open:
        parties = ("decode/0", session), ("prefill/0", 22)
        return replace(frame, capability=self.shows.capability(*parties, frame))


def test_both_sides_prove_that_they_know_the_secret() -> None:
    pair = Pair()
    hello = pair.hello()
    auth = pair.checks.answer(hello)
    assert auth is not None
    welcome = Welcome("prefill/0", 22, 1, auth)
    assert pair.shows.trust(hello, welcome)
    for lie in (
        replace(welcome, node_id="prefill/1"),
        replace(welcome, session=23),
        replace(welcome, auth=b""),
        replace(welcome, auth=bytes(32)),
    ):
        assert not pair.shows.trust(hello, lie)
    assert not pair.shows.trust(pair.hello(), welcome)  # recorded for another HELLO


@pytest.mark.parametrize(
    "change",
    [
        {"node_id": "decode/1"},
        {"session": 12},
        {"lane": 1},
        {"lanes": 5},
        {"digest": b"e" * 32},
        {"groups": (("kv", (65,)),)},
        {"features": 0},
        {"auth": b""},
        {"auth": bytes(56)},
        {"auth": bytes(64)},
    ],
)
def test_a_changed_hello_is_refused(change: dict[str, object]) -> None:
    pair = Pair()
    assert pair.checks.answer(replace(pair.hello(), **change)) is None


def test_every_bit_of_the_proof_counts() -> None:
    pair = Pair()
    auth = pair.hello().auth
    for at in range(len(auth)):
        wrong = auth[:at] + bytes([auth[at] ^ 1]) + auth[at + 1 :]
        assert pair.checks.answer(replace(HELLO, auth=wrong)) is None


def test_another_secret_is_refused_by_both() -> None:
    pair = Pair(receiver=OTHER)
    hello = pair.hello()
    assert pair.checks.answer(hello) is None
    own = replace(HELLO, auth=Pair().shows.greet(HELLO))
    auth = pair.checks.answer(own)
    assert auth is not None
    assert not pair.shows.trust(own, Welcome("prefill/0", 22, 0, auth))
    assert pair.checks.admit("decode/0", 11, pair.open()) == "capability_invalid"


def test_a_hello_is_taken_once() -> None:
    pair = Pair()
    hello = pair.hello()
    assert pair.checks.answer(hello) is not None
    assert pair.checks.answer(hello) is None
    assert pair.checks.answer(pair.hello()) is not None


def test_a_hello_is_refused_out_of_its_time_and_by_a_younger_sender() -> None:
    pair = Pair()
    hello = pair.hello()
    pair.now_s += SKEW_S + 1
    assert pair.checks.answer(hello) is None
    pair.now_s -= 2 * SKEW_S + 2
    assert pair.checks.answer(hello) is None
    pair.now_s += SKEW_S + 10
    assert pair.new_sender().answer(hello) is None  # it was not running when this was said
    pair.now_s -= 9
    assert pair.new_sender().answer(hello) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"room": 78},
        {"attempt": 4},
        {"deadline_ms": 5001},
        {"prefix_tokens": 0},
        {"grants": (11, 1)},
        {"grants": (10,)},
        {"priority": 1},
        {"capability": b""},
        {"capability": bytes(40)},
    ],
)
def test_a_changed_open_is_refused(change: dict[str, object]) -> None:
    pair = Pair()
    frame = replace(pair.open(), **change)
    assert pair.checks.admit("decode/0", 11, frame) == "capability_invalid"


def test_a_capability_holds_for_one_session_of_one_node_and_one_layout() -> None:
    pair = Pair()
    frame = pair.open()
    assert pair.checks.admit("decode/0", 11, frame) == ""
    assert pair.checks.admit("decode/1", 11, frame) == "capability_invalid"
    assert pair.checks.admit("decode/0", 12, frame) == "capability_invalid"
    for other in (pair.new_sender(digest=b"e" * 32), pair.new_sender(session=23)):
        assert other.admit("decode/0", 11, frame) == "capability_invalid"


def test_a_capability_ends_with_the_rooms_deadline() -> None:
    pair = Pair()
    frame = pair.open()
    pair.now_s += 5 + SKEW_S - 0.1
    assert pair.checks.admit("decode/0", 11, frame) == ""
    pair.now_s += 0.2
    assert pair.checks.admit("decode/0", 11, frame) == "capability_expired"
    longer = frame.capability[:7] + b"\xff" + frame.capability[8:]
    assert pair.checks.admit("decode/0", 11, replace(frame, capability=longer)) == (
        "capability_invalid"
    )


def test_secrets_are_replaced_one_after_the_other() -> None:
    """First all nodes accept both, then all sign with the new one, then the old one goes."""
    both, swapped = Secret([b"s" * 32, b"o" * 32]), Secret([b"o" * 32, b"s" * 32])
    for sender, receiver in ((both, SECRET), (SECRET, both), (both, swapped), (swapped, both)):
        pair = Pair(sender, receiver)
        hello = pair.hello()
        auth = pair.checks.answer(hello)
        assert auth is not None
        assert pair.checks.admit("decode/0", 11, pair.open()) == ""
        assert pair.shows.trust(hello, Welcome("prefill/0", 22, 0, auth))


def test_a_secret_is_long_and_never_shown() -> None:
    assert Secret.parse("a" * 32 + "\n\n" + "b" * 40 + "\n", source="f").keys[1] == b"b" * 40
    for text in ("", "short", "a" * 32 + "\nshort"):
        with pytest.raises(ConfigError, match="a secret needs 32 bytes"):
            Secret.parse(text, source="secret.txt")
    assert "sss" not in repr(SECRET)
