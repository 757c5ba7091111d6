"""The gateway's Prometheus metrics."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from prfaas.reasons import Reason, Route
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.leg import LegFailure
from prfaas_gateway.link_metrics import LinkMetrics
from prfaas_gateway.move_log import MoveLog
from prfaas_gateway.move_metrics import MoveMetrics
from prfaas_gateway.recent_requests import RecentRequests

_TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)


class Metrics:
    """All metrics of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "prfaas_requests",
            "Requests for tokens by route, reason and HTTP status (499: the client went away).",
            ["route", "reason", "code"],
            registry=registry,
        )
        self._ttft = Histogram(
            "prfaas_ttft_seconds",
            "From a streaming request's arrival to its first event sent.",
            ["route"],
            buckets=_TTFT_BUCKETS_S,
            registry=registry,
        )
        self._attempts = Counter(
            "prfaas_attempts",
            "Attempts by route and how they ended.",
            ["route", "outcome"],
            registry=registry,
        )
        self._fallbacks = Counter(
            "prfaas_fallbacks",
            "Offloads that failed and came home, by the leg that failed and how.",
            ["leg", "kind"],
            registry=registry,
        )
        self._broken_streams = Counter(
            "prfaas_broken_streams",
            "Streams that ended with an error after they had begun.",
            ["reason"],
            registry=registry,
        )
        self._prompt_tokens = Counter(
            "prfaas_prompt_tokens",
            "Prompt tokens of routed requests.",
            ["route"],
            registry=registry,
        )
        self._prefix_tokens = Counter(
            "prfaas_prefix_hit_tokens",
            "Prompt tokens expected to be cached at the chosen prefill node.",
            ["route"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "prfaas_in_flight_requests", "Requests being served now.", registry=registry
        )
        self._legs = Gauge(
            "prfaas_in_flight_legs", "Legs of this gateway per node.", ["node"], registry=registry
        )
        self._nodes = Gauge(
            "prfaas_nodes", "Known nodes by role and region.", ["role", "region"], registry=registry
        )
        self._stale = Gauge(
            "prfaas_etcd_stale", "1 while what is known may be outdated.", registry=registry
        )
        self._threshold = Gauge(
            "prfaas_threshold_tokens", "The routing threshold in force.", registry=registry
        )

        self._links = LinkMetrics(registry)
        self.recent = RecentRequests()

    def add_moves(self, log: MoveLog) -> None:
        """Show what a log counts, too."""
        MoveMetrics(self._registry, log)

    def note_request(self, route: Route, reason: Reason, code: int) -> None:
        """Count a finished request."""
        self._requests.labels(route, reason, str(code)).inc()
        self.recent.note(route, reason, code)

    def note_routed(self, route: Route, *, prompt_tokens: int, prefix_tokens: int) -> None:
        """Count the tokens of a request that got an answer."""
        self._prompt_tokens.labels(route).inc(prompt_tokens)
        self._prefix_tokens.labels(route).inc(prefix_tokens)

    def note_ttft(self, route: Route, ttft_s: float) -> None:
        """Record a stream's first event."""
        self._ttft.labels(route).observe(ttft_s)
        self.recent.note_ttft(ttft_s, at_s=time.monotonic())

    def note_attempt(self, route: Route, outcome: str) -> None:
        """Count an attempt; `outcome` is "answered" or a failure kind."""
        self._attempts.labels(route, outcome).inc()

    def note_fallback(self, failure: LegFailure) -> None:
        """Count an offload that comes home."""
        self._fallbacks.labels(str(failure.node.role), failure.kind).inc()

    def note_broken_stream(self, reason: str) -> None:
        """Count a stream that could not be finished."""
        self._broken_streams.labels(reason).inc()

    def render(self, fleet: Fleet) -> bytes:
        """Return everything in the Prometheus text format."""
        self._nodes.clear()
        for (role, region), count in fleet.count_by_role().items():
            self._nodes.labels(role, region).set(count)
        self._legs.clear()
        for node, count in fleet.in_flight().items():
            self._legs.labels(node).set(count)
        self._stale.set(fleet.view.status.stale)
        self._threshold.set(fleet.policy.threshold_tokens)
        self._links.set(fleet.links(), fleet.watch.rules, fleet.policy.threshold_tokens)
        return generate_latest(self._registry)
