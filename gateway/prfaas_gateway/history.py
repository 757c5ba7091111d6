"""The last minutes of a gateway, for charts: bounded, in memory, gone with the process."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from prfaas_gateway.recent_requests import Finished

SAMPLE_S = 2.0
HISTORY_S = 900.0


@dataclass(frozen=True, slots=True)
class LinkPoint:
    """The link from one region; what is not known of it is None, `threshold_tokens` also while
    nothing is offloaded over it."""

    threshold_tokens: int | None
    threshold_factor: float
    closed: bool
    delivery_bytes_per_s: float | None
    available_bytes_per_s: float | None
    rtt_s: float | None
    loss: float | None
    backlog_s: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """One sample. `at_s` is Unix time; `per_s` are the requests that ended, by route, and
    `errors_per_s` those of them with a status of 500 or more."""

    at_s: float
    in_flight: int
    threshold_tokens: int
    policy_version: int
    per_s: dict[str, float]
    errors_per_s: float
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    backlog_tokens: dict[str, int] = field(default_factory=dict)
    links: dict[str, LinkPoint] = field(default_factory=dict)


class History:
    """The last points, the oldest first, and what ended between them."""

    def __init__(self, limit: int = int(HISTORY_S / SAMPLE_S)) -> None:
        self._points: deque[Point] = deque(maxlen=limit)
        self._ended: deque[tuple[float, Counter[Finished]]] = deque(maxlen=limit)

    def add(self, point: Point, ended: Counter[Finished]) -> None:
        """Take a sample, and the requests that ended since the one before it."""
        self._points.append(point)
        self._ended.append((point.at_s, ended))

    def since(self, at_s: float) -> list[Point]:
        """Return the points after a time."""
        return [point for point in self._points if point.at_s > at_s]

    def ended(self, at_s: float) -> Counter[Finished]:
        """Return what has ended after a time, as far as that is kept."""
        total: Counter[Finished] = Counter()
        for then_s, ended in self._ended:
            if then_s > at_s:
                total.update(ended)
        return total

    def factor_before(self, region: str) -> float:
        """Return a link's threshold factor of the sample before the last; 1 where there is none."""
        if len(self._points) < 2:
            return 1.0
        link = self._points[-2].links.get(region)
        return link.threshold_factor if link else 1.0


def rates(ended: Mapping[Finished, int], seconds: float) -> tuple[dict[str, float], float]:
    """Return how many requests ended per second by route, and how many of all failed.

    >>> from prfaas.reasons import Reason, Route
    >>> rates({Finished(Route.LOCAL, Reason.BELOW_THRESHOLD, 200): 4}, 2.0)
    ({'local': 2.0}, 0.0)
    """
    by_route: Counter[str] = Counter()
    errors = 0
    for finished, count in ended.items():
        by_route[str(finished.route)] += count
        errors += count if finished.code >= 500 else 0
    return {route: round(count / seconds, 3) for route, count in by_route.items()}, round(
        errors / seconds, 3
    )
