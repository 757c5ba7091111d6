"""From a link's signals to what they mean for offloads: the short-term half of scheduling.

Source: PrfaaS §3.3 (signals before queues build up) and §3.4.3 (short term).
"""

from dataclasses import dataclass

from prfaas.routing.snapshot import Bandwidth, LinkRule


@dataclass(frozen=True, slots=True)
class LinkSignal:
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
    alarming when it costs as much as what offloading a prompt saves.
    """

    utilisation: tuple[float, float] = (0.75, 0.90)
    backlog_s: tuple[float, float] = (0.5, 2.0)
    loss: tuple[float, float] = (0.005, 0.05)
    abundant_utilisation: tuple[float, float] = (0.35, 0.55)
    raise_by: float = 1.3
    lower_by: float = 1.08
    max_factor: float = 8.0


class LinkControl:
    """Turns signals into a `LinkRule`, one call per period.

    As the link fills, the threshold rises step by step, so the shortest offloads come home first;
    it comes down in smaller steps. On an outage, or a surge of loss, the link closes within one
    period; when it is back the threshold starts from its maximum, so offloads do not return all at
    once.
    """

    def __init__(self, limits: LinkLimits | None = None) -> None:
        self._limits = limits or LinkLimits()
        self._factor = 1.0
        self._bandwidth = Bandwidth.SCARCE
        self._wait_s = 0.0

    @property
    def rule(self) -> LinkRule:
        """The rule after the last signal, for an open link."""
        return LinkRule(self._bandwidth, self._factor, wait_s=self._wait_s)

    def on_signal(self, signal: LinkSignal) -> LinkRule:
        """Take one period's signal and return the rule until the next."""
        limits = self._limits
        if not signal.up or signal.loss >= limits.loss[1]:
            self._factor = limits.max_factor
            self._bandwidth = Bandwidth.SCARCE
            return LinkRule(self._bandwidth, self._factor, closed=True)
        self._wait_s = signal.backlog_s
        if self._is_alarming(signal):
            self._factor = min(self._factor * limits.raise_by, limits.max_factor)
        elif self._is_calm(signal):
            self._factor = max(self._factor / limits.lower_by, 1.0)
        self._bandwidth = self._next_bandwidth(signal)
        return self.rule

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
