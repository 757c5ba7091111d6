"""Whether a prefix is moved to where it is asked for: now, for this request, or for many to come.

A request whose prefill node lacks what another region has cached gains the prefill of those tokens
and pays the move. Where that is a gain, the request waits for the move. Where it is none for one
request, but the same prefix is asked for again and again, it is replicated in the background. Both
only while the link is abundant, and both from one budget: a share of what the link carries.

Source: PrfaaS §3.4.3 (abundant bandwidth: the best cache of all clusters counts and is moved) and
§3.3 (hot-spot replication by the global KV cache manager).
"""

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from prfaas.routing.ask_counts import AskCounts
from prfaas.routing.snapshot import Bandwidth, LinkRule


class Verdict(StrEnum):
    """What is done about a prefix that another region has; the label of a metric."""

    WAIT = "wait"
    """Moved now, and the request waits for it."""
    REPLICATE = "replicate"
    """Moved in the background: it is asked for often."""
    NOT_HOT = "not_hot"
    """It does not pay for one request, and is not asked for often."""
    SHORT = "short"
    """It spares too few tokens."""
    NO_POOL = "no_pool"
    """One of the two has no pool that prefixes could come from or go to."""
    LINK = "link"
    """The link is closed or scarce."""
    BUDGET = "budget"
    """Moves had their share of the link."""
    RECENT = "recent"
    """The same move was made or tried a moment ago."""


@dataclass(frozen=True, slots=True)
class ReplicationLimits:
    """`share` of the link's rate is what moves may take on average, in bursts of `burst_s`.

    A prefix is hot after `hot_asks` within about a half-life; the same move is not made again for
    `again_s`. What spares less than `least_tokens` is not worth the bother. A move takes `setup_s`
    however small it is. A request waits `longest_wait_s` at most.
    """

    share: float = 0.2
    burst_s: float = 10.0
    hot_asks: float = 3.0
    half_life_s: float = 60.0
    again_s: float = 30.0
    least_tokens: int = 256
    setup_s: float = 0.1
    longest_wait_s: float = 2.0
    max_recent: int = 4096


@dataclass(frozen=True, slots=True)
class Wanted:
    """A prefix that is cached in one region and asked for in another.

    `name` stands for the prefix and where it is to go; `gain_tokens` is what it spares there.
    `tokens_per_s` is how fast a node there prefills, 0 if unknown, `bytes_per_token` what a move
    takes, 0 if none was made yet. `has_pools`: both ends can move.
    """

    name: bytes
    gain_tokens: int
    link: LinkRule
    available_bytes_per_s: float = 0.0
    tokens_per_s: float = 0.0
    bytes_per_token: float = 0.0
    has_pools: bool = True


@dataclass(slots=True)
class _Budget:
    """Bytes that may be moved over one link; in debt after a move that was larger than it."""

    balance_bytes: float = 0.0
    at_s: float | None = None

    def refill(self, now_s: float, *, bytes_per_s: float, burst_s: float) -> None:
        most = bytes_per_s * burst_s
        before_s = now_s - burst_s if self.at_s is None else self.at_s
        earned = (now_s - before_s) * bytes_per_s
        self.balance_bytes = min(self.balance_bytes + max(earned, 0.0), most)
        self.at_s = now_s


class Replication:
    """Decides about moves over the links of one gateway. Times are of one monotonic clock."""

    def __init__(self, limits: ReplicationLimits | None = None) -> None:
        self.limits = limits or ReplicationLimits()
        self._asks = AskCounts(half_life_s=self.limits.half_life_s)
        self._recent: OrderedDict[bytes, float] = OrderedDict()
        self._budgets: dict[str, _Budget] = {}

    def judge(self, region: str, wanted: Wanted, now_s: float) -> Verdict:
        """Decide about one request's lack; `region` names the link. Counts it as asked for.

        WAIT and REPLICATE are to be followed by the move, and `note_moved`.
        """
        limits = self.limits
        if wanted.gain_tokens < limits.least_tokens:
            return Verdict.SHORT
        if not wanted.has_pools:
            return Verdict.NO_POOL
        asks = self._asks.add(wanted.name, now_s)
        if wanted.link.closed or wanted.link.bandwidth is not Bandwidth.ABUNDANT:
            return Verdict.LINK
        if now_s - self._recent.get(wanted.name, float("-inf")) < limits.again_s:
            return Verdict.RECENT
        pays = self.wait_s(wanted) > 0
        if not pays and asks < limits.hot_asks:
            return Verdict.NOT_HOT
        if self.balance_bytes(region, wanted.available_bytes_per_s, now_s) <= 0:
            return Verdict.BUDGET
        self._note_recent(wanted.name, now_s)
        return Verdict.WAIT if pays else Verdict.REPLICATE

    def wait_s(self, wanted: Wanted) -> float:
        """Return how long a request may wait for the move: what it would spare, 0: it is no gain.

        >>> from prfaas.routing.snapshot import LinkRule
        >>> slow = Wanted(b"", 1000, LinkRule(), 1e6, tokens_per_s=1000, bytes_per_token=2000)
        >>> Replication().wait_s(slow)
        0.0
        """
        if not wanted.tokens_per_s:
            return 0.0
        saved_s = wanted.gain_tokens / wanted.tokens_per_s
        rate = wanted.available_bytes_per_s
        move_s = wanted.gain_tokens * wanted.bytes_per_token / rate if rate else 0.0
        if self.limits.setup_s + move_s >= saved_s:
            return 0.0
        return min(saved_s, self.limits.longest_wait_s)

    def note_moved(self, region: str, num_bytes: int) -> None:
        """Charge what a move took."""
        self._budgets.setdefault(region, _Budget()).balance_bytes -= num_bytes

    def balance_bytes(self, region: str, available_bytes_per_s: float, now_s: float) -> float:
        """Return what may be moved over a link now; nothing while its rate is unknown."""
        budget = self._budgets.setdefault(region, _Budget())
        budget.refill(
            now_s,
            bytes_per_s=self.limits.share * available_bytes_per_s,
            burst_s=self.limits.burst_s,
        )
        return budget.balance_bytes

    def _note_recent(self, name: bytes, now_s: float) -> None:
        self._recent.pop(name, None)
        self._recent[name] = now_s
        while len(self._recent) > self.limits.max_recent:
            self._recent.popitem(last=False)
