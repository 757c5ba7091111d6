"""What goes wrong in a soak, and when: a plan that depends on nothing but the seed."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from prfaas.wire import Hello, encode

KINDS = {
    "reset": 0.22,
    "reset_all": 0.04,
    "stall": 0.14,
    "unread": 0.08,
    "delay": 0.08,
    "pieces": 0.08,
    "half_close": 0.06,
    "stray": 0.12,
    "freeze": 0.06,
    "kill": 0.05,
    "heal": 0.07,
}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, `wait_s` after the one before; `pick` says with whom."""

    wait_s: float
    kind: str
    pick: int
    way: str
    seconds: float
    size: int


def plan(seed: int) -> Iterator[Fault]:
    """Yield faults for ever."""
    rng = np.random.default_rng([seed, 7])
    kinds, shares = list(KINDS), list(KINDS.values())
    while True:
        yield Fault(
            wait_s=float(rng.choice([0.02, 0.1, 0.3])),
            kind=str(rng.choice(kinds, p=shares)),
            pick=int(rng.integers(1 << 30)),
            way=str(rng.choice(["up", "down", "both"])),
            seconds=float(rng.choice([0.1, 0.5, 1.0, 2.5], p=[0.4, 0.35, 0.15, 0.1])),
            size=int(rng.choice([1, 100, 1400])),
        )


def digest(faults: list[Fault]) -> str:
    """Return a short name of what was done: the same for a replay."""
    return hashlib.sha256(repr(faults).encode()).hexdigest()[:16]


def stray_bytes(fault: Fault, recorded: bytes) -> bytes:
    """Return what a stranger says: nothing, noise, half a frame, or what it has recorded."""
    rng = np.random.default_rng(fault.pick)
    hello = encode(Hello("stranger", 1, 0, 1, bytes(32), ()))
    choices = [
        b"",
        rng.bytes(200),
        hello,
        hello[:11],
        recorded,
        recorded[:30],
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    return choices[fault.pick % len(choices)]
