"""How many lanes a path needs: more where each carries all that its socket's buffers allow."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from prfaas.transfer.events import Address
from prfaas.transfer.receive_peer import DialSlot
from prfaas.transfer.receiver import Receiver
from prfaas.transfer.signals import LaneSample

FIRST_LANES = 8
MOST_LANES = 32
PERIOD_S = 1.0
FULL_SHARE = 0.6

_BUFFERS = ("tcp_rmem", "tcp_wmem")


def window_bytes() -> float:
    """Return about how many bytes one lane can have under way, if the peer's limits are ours.

    The kernel's autotuning ends at the third figure of `tcp_rmem` and `tcp_wmem`; half of that is
    its own overhead.
    """
    limits = [int((Path("/proc/sys/net/ipv4") / name).read_text().split()[2]) for name in _BUFFERS]
    return min(limits) / 2


class _Reading(NamedTuple):
    bytes_received: int
    at_s: float
    rtt_s: float


@dataclass(slots=True)
class LaneCount:
    """Follows the lanes to one peer; `wanted` only grows, up to `MOST_LANES`.

    A lane is full when it brings most of a window per round trip: then its buffers are the limit,
    not the path, and twice as many lanes carry more.
    """

    window_bytes: float
    wanted: int = FIRST_LANES
    _since_s: float | None = None
    _first: dict[int, _Reading] = field(default_factory=dict)
    _latest: dict[int, _Reading] = field(default_factory=dict)

    def observe(self, sample: LaneSample, bytes_received: int) -> int:
        """Take a reading of a lane; return how many lanes are wanted."""
        if self._since_s is None:
            self._since_s = sample.at_s
        reading = self._latest[sample.lane] = _Reading(bytes_received, sample.at_s, sample.rtt_s)
        self._first.setdefault(sample.lane, reading)
        if sample.at_s - self._since_s >= PERIOD_S:
            if 2 * sum(map(self._is_full, self._latest)) >= self.wanted:
                self.wanted = min(2 * self.wanted, MOST_LANES)
            self._since_s = sample.at_s
            self._first, self._latest = self._latest, {}
        return self.wanted

    def _is_full(self, lane: int) -> bool:
        first, latest = self._first[lane], self._latest[lane]
        elapsed_s = latest.at_s - first.at_s
        if elapsed_s <= 0:
            return False
        bytes_per_s = (latest.bytes_received - first.bytes_received) / elapsed_s
        return bytes_per_s * latest.rtt_s >= FULL_SHARE * self.window_bytes


class GrowingReceiver(Receiver):
    """A receiver whose peers can be given more lanes while they are up."""

    def address_of(self, lane: int) -> Address | None:
        """Return where a lane leads to; None if it is not known any more."""
        state = self._lanes.get(lane)
        return None if state is None else state.peer.address

    def grow(self, address: Address, lanes: int, now: float) -> None:
        """Have more lanes dialled, up to so many in all."""
        peer = self._peers.get(address)
        if peer is not None and len(peer.slots) < lanes:
            peer.slots += [DialSlot(now) for _ in range(lanes - len(peer.slots))]
            self._wake_at(now)
