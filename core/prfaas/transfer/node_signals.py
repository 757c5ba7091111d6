"""What a node's agent tells gateways of the paths to the node's peers, as one JSON line."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prfaas.transfer.signals import Congestion, PeerSignals

MAX_PEERS = 256
_MAX_NAME_CHARS = 128
_SHARES = (
    *("retransmit_share", "loss_share", "utilisation"),
    *("busy_share", "rwnd_limited_share", "sndbuf_limited_share"),
)
_FLAGS = ("is_up", "is_link_limited")
_AMOUNTS = ("rtt_s", "min_rtt_s", "delivery_bytes_per_s", "available_bytes_per_s", "backlog_s")


@dataclass(frozen=True, slots=True)
class NodeSignals:
    """A node's view. `age_s` is how old it was when it was said, None if the engine said nothing.

    `peers` are the other ends of lanes that have signals, by peer id (`<node name>/<rank>`): those
    that the node sends KV cache to.
    """

    node: str
    age_s: float | None
    peers: Mapping[str, PeerSignals]

    def to_line(self) -> bytes:
        """Return one line of JSON."""
        peers = {name: signals.to_json() for name, signals in self.peers.items()}
        raw = {"node": self.node, "age_s": self.age_s, "peers": peers}
        return json.dumps(raw, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "NodeSignals":
        """Parse a line; unknown keys are ignored. Raises: ValueError if it is none of ours."""
        raw = json.loads(line)
        if not isinstance(raw, dict) or not isinstance(raw.get("node"), str):
            raise ValueError("signals must be an object that names its node")
        age_s = raw.get("age_s")
        if age_s is not None:
            age_s = _number("age_s", age_s, math.inf)
        return cls(raw["node"][:_MAX_NAME_CHARS], age_s, peers_from_json(raw.get("peers")))


def peers_from_json(raw: object) -> dict[str, PeerSignals]:
    """Parse signals by peer id. Raises: ValueError."""
    if not isinstance(raw, dict):
        raise ValueError("peers must be an object")
    if len(raw) > MAX_PEERS or any(len(name) > _MAX_NAME_CHARS for name in raw):
        raise ValueError(f"more than {MAX_PEERS} peers, or a name that is too long")
    return {name: signals_from_json(signals) for name, signals in raw.items()}


def signals_from_json(raw: object) -> PeerSignals:
    """Parse what `PeerSignals.to_json` gave; what is missing is as by default.

    Raises: ValueError.
    """
    if not isinstance(raw, dict):
        raise ValueError("a peer's signals must be an object")
    values: dict[str, Any] = {}
    for names, limit in ((_SHARES, 1.0), (_AMOUNTS, math.inf)):
        values |= {name: _number(name, raw[name], limit) for name in names if name in raw}
    if "backlog_bytes" in raw:
        values["backlog_bytes"] = int(_number("backlog_bytes", raw["backlog_bytes"], math.inf))
    for name in _FLAGS:
        if name in raw:
            if type(raw[name]) is not bool:
                raise ValueError(f"{name}: {raw[name]!r}, expected true or false")
            values[name] = raw[name]
    return PeerSignals(congestion=Congestion(raw.get("congestion", "none")), **values)


def _number(name: str, value: object, limit: float) -> float:
    if type(value) in (int, float):
        with suppress(OverflowError):  # an integer beyond all floats
            number = float(value)  # type: ignore[arg-type]
            if math.isfinite(number) and 0 <= number <= limit:
                return number
    raise ValueError(f"{name}: {value!r:.80}, expected 0 to {limit}")
