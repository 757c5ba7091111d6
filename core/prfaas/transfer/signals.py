"""What TCP says about the lanes, turned into what one peer's path can carry and how full it is.

Source: PrfaaS §3.3 (loss and retransmission are seen before queues build up).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from prfaas.routing.link_control import LinkSignal


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSample:
    """One reading of a lane's TCP_INFO at `at_s` of a monotonic clock.

    Counted since the lane was opened: `bytes_acked`, `bytes_retrans`, `busy_s` (something was
    unacknowledged or unsent), `rwnd_limited_s` and `sndbuf_limited_s` (of that, waiting for the
    peer's window or for our buffer). As of now: `rtt_s`, `rttvar_s`, `delivery_bytes_per_s`,
    `unsent_bytes` (in the socket), `is_app_limited` (the rate was ours to raise).
    """

    lane: int
    at_s: float
    rtt_s: float
    rttvar_s: float
    bytes_acked: int
    bytes_retrans: int
    delivery_bytes_per_s: float
    busy_s: float
    rwnd_limited_s: float
    sndbuf_limited_s: float
    unsent_bytes: int
    is_app_limited: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a value of JSON types."""
        return _values(self)


class Congestion(StrEnum):
    """How a path's queues do."""

    NONE = "none"
    BUILDING = "building"
    CONGESTED = "congested"


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerSignals:
    """One period's view of the path to a peer.

    `available_bytes_per_s` is what the path carries for us when we ask it to, 0 while that is
    unknown; `utilisation` is how much of it we use. Shares are of the lanes' time. `is_up` is False
    where bytes wait and none is acknowledged for `SignalLimits.outage_s`, or no lane is left.
    `loss_share` is the `retransmit_share`, 0 where too few bytes were sent to tell it from chance.
    `is_link_limited`: bytes waited all the time, and for nothing but the link.
    """

    rtt_s: float = 0.0
    min_rtt_s: float = 0.0
    retransmit_share: float = 0.0
    loss_share: float = 0.0
    delivery_bytes_per_s: float = 0.0
    available_bytes_per_s: float = 0.0
    utilisation: float = 0.0
    backlog_bytes: int = 0
    backlog_s: float = 0.0
    busy_share: float = 0.0
    rwnd_limited_share: float = 0.0
    sndbuf_limited_share: float = 0.0
    congestion: Congestion = Congestion.NONE
    is_up: bool = True
    is_link_limited: bool = False

    def link_signal(self) -> LinkSignal:
        """Return what the routing of requests goes by."""
        return LinkSignal(
            utilisation=self.utilisation,
            backlog_s=self.backlog_s,
            loss=self.loss_share,
            up=self.is_up,
        )

    def to_json(self) -> dict[str, Any]:
        """Return a value of JSON types."""
        return _values(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalLimits:
    """When what counts. Pairs are (building, congested); a delay is beyond the smallest RTT seen.

    loss: share of bytes sent again, of `loss_bytes` per period or more; below that one lost packet
    is noise. delay_rtts and delay_s: both must be exceeded.
    smooth_s: time constant of rates and shares. available_s, min_rtt_s: how long a maximum of the
    rate and a minimum of the RTT are remembered.
    """

    loss: tuple[float, float] = (0.005, 0.05)
    loss_bytes: int = 256 << 10
    delay_rtts: tuple[float, float] = (0.25, 1.0)
    delay_s: tuple[float, float] = (0.005, 0.02)
    busy_share: float = 0.05
    full_share: float = 0.9
    outage_s: float = 1.0
    smooth_s: float = 0.5
    available_s: float = 10.0
    min_rtt_s: float = 300.0


@dataclass(slots=True)
class _Period:
    """What the lanes did between two samples, added up."""

    seconds: float = 0.0
    lane_seconds: float = 0.0
    acked: int = 0
    retrans: int = 0
    busy_s: float = 0.0
    rwnd_s: float = 0.0
    sndbuf_s: float = 0.0
    unsent: int = 0
    bytes_per_s: float = 0.0
    lane_bytes_per_s: float = 0.0
    rtt_s: float = 0.0

    def share(self, seconds: float) -> float:
        """Return a part of the lanes' time."""
        return min(1.0, seconds / self.lane_seconds) if self.lane_seconds else 0.0


class PathEstimator:
    """Follows the lanes to one peer; `update` is called once per period, with all of them."""

    def __init__(self, limits: SignalLimits | None = None) -> None:
        self._limits = limits or SignalLimits()
        self._last: dict[int, LaneSample] = {}
        self._rate = _Smooth()
        self._sent = _Smooth()
        self._again = _Smooth()
        self._capacity = _WindowMax()
        self._floor = _WindowMax()
        self._stalled_s: float | None = None
        self._had_backlog = False

    def update(
        self, samples: Sequence[LaneSample], *, backlog_bytes: int, now: float
    ) -> PeerSignals:
        """Return the signals of the time since the last call."""
        period = self._period(samples)
        weight = min(1.0, period.seconds / self._limits.smooth_s)
        rate = self._rate.take(period.bytes_per_s, weight)
        sent = self._sent.take(period.acked + period.retrans, weight)
        loss = self._again.take(period.retrans, weight) / sent if sent >= 1 else 0.0
        told_loss = min(1.0, loss) if sent >= self._limits.loss_bytes else 0.0
        if period.rtt_s:
            self._floor.take(-period.rtt_s, now, self._limits.min_rtt_s)
        is_link_limited = self._is_link_limited(period, backlog_bytes)
        self._note_capacity(period, now, is_link_limited=is_link_limited)
        available = self._capacity.value
        is_up = self._is_up(samples, period, backlog_bytes, now)
        self._had_backlog = backlog_bytes > 0
        return PeerSignals(
            rtt_s=period.rtt_s,
            min_rtt_s=-self._floor.value,
            retransmit_share=min(1.0, loss),
            loss_share=told_loss,
            delivery_bytes_per_s=rate,
            available_bytes_per_s=available,
            utilisation=min(1.0, rate / available) if available else 0.0,
            backlog_bytes=backlog_bytes,
            backlog_s=backlog_bytes / available if available else 0.0,
            busy_share=period.share(period.busy_s),
            rwnd_limited_share=period.share(period.rwnd_s),
            sndbuf_limited_share=period.share(period.sndbuf_s),
            congestion=self._congestion(period, told_loss),
            is_up=is_up,
            is_link_limited=is_link_limited,
        )

    def _period(self, samples: Sequence[LaneSample]) -> _Period:
        period = _Period()
        weights = 0.0
        for sample in samples:
            last = self._last.get(sample.lane)
            if last is None or sample.at_s <= last.at_s or sample.bytes_acked < last.bytes_acked:
                continue
            _add(period, last, sample)
            weight = 1.0 + sample.bytes_acked - last.bytes_acked
            period.rtt_s += weight * sample.rtt_s
            weights += weight
        period.rtt_s = period.rtt_s / weights if weights else 0.0
        self._last = {sample.lane: sample for sample in samples}
        return period

    def _note_capacity(self, period: _Period, now: float, *, is_link_limited: bool) -> None:
        """A link that is the limit shows what it carries; else bursts show that it carries more."""
        if is_link_limited:
            self._capacity.replace(period.bytes_per_s, now)
        elif period.acked:
            seen = max(period.bytes_per_s, period.lane_bytes_per_s)
            self._capacity.take(seen, now, self._limits.available_s)

    def _is_link_limited(self, period: _Period, backlog_bytes: int) -> bool:
        has_backlog = backlog_bytes > 0 and self._had_backlog
        waits_for_others = period.rwnd_s + period.sndbuf_s > 0.5 * period.busy_s
        is_full = period.share(period.busy_s) >= self._limits.full_share
        return has_backlog and is_full and period.acked > 0 and not waits_for_others

    def _is_up(
        self, samples: Sequence[LaneSample], period: _Period, backlog_bytes: int, now: float
    ) -> bool:
        if not samples:
            self._stalled_s = None
            return False
        if period.acked or not (backlog_bytes or period.unsent):
            self._stalled_s = None
            return True
        if self._stalled_s is None:
            self._stalled_s = now
        return now - self._stalled_s < self._limits.outage_s

    def _congestion(self, period: _Period, loss: float) -> Congestion:
        limits = self._limits
        min_rtt_s = -self._floor.value
        is_busy = period.share(period.busy_s) >= limits.busy_share
        delay_s = period.rtt_s - min_rtt_s if is_busy and period.rtt_s else 0.0
        for level, name in ((1, Congestion.CONGESTED), (0, Congestion.BUILDING)):
            is_late = delay_s > max(limits.delay_s[level], limits.delay_rtts[level] * min_rtt_s)
            if loss >= limits.loss[level] or is_late:
                return name
        return Congestion.NONE


@dataclass(slots=True)
class _Smooth:
    """An exponential mean whose first value counts in full."""

    _value: float | None = None

    def take(self, value: float, weight: float) -> float:
        """Mix in a value and return the mean."""
        last = value if self._value is None else self._value
        self._value = last + weight * (value - last)
        return self._value


@dataclass(slots=True)
class _WindowMax:
    """The largest value of the last seconds; the last known one while none came."""

    _values: deque[tuple[float, float]] = field(default_factory=deque)  # time, falling values

    def take(self, value: float, now: float, window_s: float) -> None:
        """Note a value."""
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((now, value))
        while len(self._values) > 1 and self._values[0][0] < now - window_s:
            self._values.popleft()

    def replace(self, value: float, now: float) -> None:
        """Note a value that says more than all before."""
        last = self._values[0][1] if self._values else value
        self._values.clear()
        self._values.append((now, max(value, 0.5 * (value + last))))

    @property
    def value(self) -> float:
        """Return the largest, 0 if there never was one."""
        return self._values[0][1] if self._values else 0.0


def _values(record: LaneSample | PeerSignals) -> dict[str, Any]:
    """Return all fields; `asdict`, which copies what never changes, takes ten times as long."""
    return {item.name: getattr(record, item.name) for item in fields(record)}


def _add(period: _Period, last: LaneSample, sample: LaneSample) -> None:
    seconds = sample.at_s - last.at_s
    acked = sample.bytes_acked - last.bytes_acked
    period.seconds = max(period.seconds, seconds)
    period.lane_seconds += seconds
    period.acked += acked
    period.retrans += max(0, sample.bytes_retrans - last.bytes_retrans)
    period.busy_s += sample.busy_s - last.busy_s
    period.rwnd_s += sample.rwnd_limited_s - last.rwnd_limited_s
    period.sndbuf_s += sample.sndbuf_limited_s - last.sndbuf_limited_s
    period.unsent += sample.unsent_bytes
    period.bytes_per_s += acked / seconds
    if acked:
        period.lane_bytes_per_s = max(period.lane_bytes_per_s, sample.delivery_bytes_per_s)
