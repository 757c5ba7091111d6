"""The requests of late, as people watch them: counts by what became of them, and times to first
token."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prfaas.reasons import Reason, Route

MAX_TTFTS = 4096
WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a request. `code` is the HTTP status."""

    route: Route
    reason: Reason
    code: int


@dataclass(frozen=True, slots=True)
class TtftSeen:
    """Times to first token of `count` streams, in seconds; None where there were none."""

    count: int
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None

    @classmethod
    def of(cls, ttfts_s: Iterable[float]) -> "TtftSeen":
        """Return the percentiles of some times.

        >>> TtftSeen.of([0.3, 0.1, 0.2])
        TtftSeen(count=3, p50_s=0.2, p90_s=0.3, p99_s=0.3)
        """
        ordered = sorted(ttfts_s)
        if not ordered:
            return cls(0)
        return cls(len(ordered), *(_percentile(ordered, share) for share in (0.5, 0.9, 0.99)))


class RecentRequests:
    """All requests counted since the start, and the streams' last times to first token."""

    def __init__(self, limit: int = MAX_TTFTS) -> None:
        self.counts: Counter[Finished] = Counter()
        self._ttfts: deque[tuple[float, float]] = deque(maxlen=limit)

    def note(self, route: Route, reason: Reason, code: int) -> None:
        """Count a finished request."""
        self.counts[Finished(route, reason, code)] += 1

    def note_ttft(self, ttft_s: float, *, at_s: float) -> None:
        """Keep a stream's time to first token; `at_s` is on any clock that only goes forward."""
        self._ttfts.append((at_s, ttft_s))

    def ttft(self, now_s: float, window_s: float = WINDOW_S) -> TtftSeen:
        """Return what the streams of the last seconds waited, of the last 4096 at most."""
        return TtftSeen.of(ttft_s for at_s, ttft_s in self._ttfts if at_s > now_s - window_s)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest rank: a time that was seen."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
