"""From a link's signals to what they mean for offloads: the short-term half of scheduling.

Source: PrfaaS §3.3 (signals before queues build up) and §3.4.3 (short term).
"""

from dataclasses import dataclass
from typing import NamedTuple

from prfaas.routing.snapshot import Bandwidth, LinkRule


class LinkSignal(NamedTuple):
    """One period's measurement of the direction that KV cache takes.

    `utilisation` is bytes sent over what the link could carry; `backlog_s` is how long what is
    queued now will take; `loss` the share of bytes sent again; `up` is False where nothing gets
    through at all.
    """

    utilisation: float
    backlog_s: float
    loss: float = 0.0
    up: bool = True


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """When to do what. Each pair is (calm, alarm): between the two nothing changes.

    A backlog of seconds is usual where a link is not much faster than one prefill produces; it is
    alarming when it costs as much as what offloading a prompt saves. `longest_hold` is in periods.
    """

    utilisation: tuple[float, float] = (0.75, 0.90)
    backlog_s: tuple[float, float] = (0.5, 2.0)
    loss: tuple[float, float] = (0.005, 0.05)
    abundant_utilisation: tuple[float, float] = (0.35, 0.55)
    raise_by: float = 1.3
    lower_by: float = 1.08
    probe_by: float = 1.01
    max_factor: float = 8.0
    longest_hold: int = 64


class LinkControl:
    """Turns signals into a `LinkRule`, one call per period.

    As the link fills, the threshold rises step by step, so the shortest offloads come home first;
    not while the backlog already falls, so that it does not rise too far. It comes down in smaller
    steps, and in very small ones from where the link was full: else it would fall until the link is
    full again, and swing for ever. On an outage, or a surge of loss, the link closes within one
    period; when it is back the threshold starts from its maximum, so offloads do not return all at
    once. A link that breaks again before it is back to normal stays closed for one period the first
    time and twice as long each time after, so that one that fails under load is not tried for ever.
    """

    def __init__(self, limits: LinkLimits | None = None) -> None:
        self._limits = limits or LinkLimits()
        self._factor = 1.0
        self._bandwidth = Bandwidth.SCARCE
        self._wait_s = 0.0
        self._closed = False
        self._full_at = 0.0  # the factor at which the link was last too full
        self._hold = 0  # periods that the last closing was to last at least; 0: long ago
        self._left = 0  # of them, those to come

    @property
    def rule(self) -> LinkRule:
        """The rule after the last signal."""
        if self._closed:
            return LinkRule(self._bandwidth, self._factor, closed=True)
        return LinkRule(self._bandwidth, self._factor, wait_s=self._wait_s)

    def on_signal(self, signal: LinkSignal | None) -> LinkRule:
        """Take one period's signal and return the rule until the next.

        None says that nothing is known: such a link is open, and not abundant.
        """
        if self._is_closed_by(signal):
            return self.rule
        last_wait_s, self._wait_s = self._wait_s, signal.backlog_s if signal else 0.0
        if signal and self._is_alarming(signal):
            if signal.backlog_s >= last_wait_s:
                self._raise()
        elif self._factor > 1 and (signal is None or self._is_calm(signal)):
            self._lower()
        self._bandwidth = self._next_bandwidth(signal) if signal else Bandwidth.SCARCE
        return LinkRule(self._bandwidth, self._factor, wait_s=self._wait_s)

    def _raise(self) -> None:
        self._full_at = max(self._full_at, self._factor)
        self._factor = min(self._factor * self._limits.raise_by, self._limits.max_factor)

    def _lower(self) -> None:
        """Take a step down; small ones where the link was found to be full."""
        limits = self._limits
        near = self._factor <= self._full_at * limits.raise_by
        self._factor = max(self._factor / (limits.probe_by if near else limits.lower_by), 1.0)
        self._full_at = min(self._full_at, self._factor)
        if self._factor == 1:
            self._hold, self._full_at = 0, 0.0

    def _is_closed_by(self, signal: LinkSignal | None) -> bool:
        """Close the link if it is broken, and say whether it is closed, for that or still."""
        limits = self._limits
        broken = signal is not None and (not signal.up or signal.loss >= limits.loss[1])
        if not broken and not self._closed:
            return False
        if broken and not self._closed:
            self._hold = min(2 * self._hold, limits.longest_hold) or 1
            self._left = self._hold
            self._factor = limits.max_factor
            self._bandwidth = Bandwidth.SCARCE
        self._left = max(self._left - 1, 0) if self._closed else self._left
        self._closed = broken or (self._closed and self._left > 0)
        return self._closed

    def _is_alarming(self, signal: LinkSignal) -> bool:
        limits = self._limits
        return signal.backlog_s > limits.backlog_s[1] or (
            signal.utilisation > limits.utilisation[1] and signal.backlog_s > limits.backlog_s[0]
        )

    def _is_calm(self, signal: LinkSignal) -> bool:
        limits = self._limits
        return (
            signal.utilisation < limits.utilisation[0]
            and signal.backlog_s < limits.backlog_s[0]
            and signal.loss < limits.loss[0]
        )

    def _next_bandwidth(self, signal: LinkSignal) -> Bandwidth:
        calm, alarm = self._limits.abundant_utilisation
        if self._factor > 1 or signal.utilisation > alarm or signal.loss >= self._limits.loss[0]:
            return Bandwidth.SCARCE
        return Bandwidth.ABUNDANT if signal.utilisation < calm else self._bandwidth
