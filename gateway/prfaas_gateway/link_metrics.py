"""The links from other regions as gauges of the gateway."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge

from prfaas.routing import LinkRule
from prfaas.routing.region_link import RegionLink


class LinkMetrics:
    """Gauges per remote region; a link that nothing is known of has only `prfaas_link_stale`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(name, text, ["region"], registry=registry)
            for name, (text, _) in _OF.items()
        }

        self._factor = Gauge(
            "prfaas_link_threshold_factor",
            "What the state of the link multiplies the threshold by; 1 for a healthy link.",
            ["region"],
            registry=registry,
        )
        self._closed = Gauge(
            "prfaas_link_closed",
            "1 while nothing is offloaded over the link, for an outage or a surge of loss.",
            ["region"],
            registry=registry,
        )
        self._effective = Gauge(
            "prfaas_link_threshold_tokens",
            "Above how many uncached tokens prompts are offloaded over the link; +Inf: none is.",
            ["region"],
            registry=registry,
        )

    def set(
        self, links: Mapping[str, RegionLink], rules: Mapping[str, LinkRule], threshold_tokens: int
    ) -> None:
        """Show these links and no others."""
        for gauge in (self._factor, self._closed, self._effective):
            gauge.clear()
        for region in links:
            rule = rules.get(region, LinkRule())
            self._factor.labels(region).set(rule.threshold_factor)
            self._closed.labels(region).set(rule.closed)
            self._effective.labels(region).set(rule.effective_tokens(threshold_tokens))
        for name, gauge in self._gauges.items():
            gauge.clear()
            _, read = _OF[name]
            for region, link in links.items():
                value = read(link)
                if value is not None:
                    gauge.labels(region).set(value)


def _of_signal(name: str) -> Callable[[RegionLink], float | None]:
    return lambda link: None if link.signal is None else float(getattr(link.signal, name))


_OF: dict[str, tuple[str, Callable[[RegionLink], float | None]]] = {
    "prfaas_link_up": (
        "0 where no KV cache gets through from a region's prefill nodes to our decode nodes.",
        _of_signal("up"),
    ),
    "prfaas_link_utilisation_ratio": (
        "How much of what it carries the link is asked for; the fullest path's.",
        _of_signal("utilisation"),
    ),
    "prfaas_link_backlog_seconds": (
        "How long what waits for the link takes; the longest path's.",
        _of_signal("backlog_s"),
    ),
    "prfaas_link_retransmit_ratio": (
        "Share of bytes that TCP sent again, 0 where few were sent; the worst path's.",
        _of_signal("loss"),
    ),
    "prfaas_link_delivery_bytes_per_second": (
        "Bytes acknowledged per second, of all paths together.",
        lambda link: link.delivery_bytes_per_s if link.num_paths else None,
    ),
    "prfaas_link_available_bytes_per_second": (
        "What the link was seen to carry; 0 while unknown.",
        lambda link: link.available_bytes_per_s if link.num_paths else None,
    ),
    "prfaas_link_paths": (
        "Pairs of a prefill node there and a decode node here that tell of the link.",
        lambda link: link.num_paths,
    ),
    "prfaas_link_signal_age_seconds": (
        "How old the oldest node's view is; absent until there has been one.",
        lambda link: link.age_s,
    ),
    "prfaas_link_stale": (
        "1 while a prefill node there has told nothing for two seconds.",
        lambda link: link.is_stale,
    ),
}
