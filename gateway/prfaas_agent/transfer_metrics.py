"""A node's transfers as Prometheus metrics, made from the engine's latest counters when asked."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from prfaas.config import NodeSection
from prfaas.transfer.histogram import Histogram
from prfaas.transfer.signals import Congestion
from prfaas_agent import metric_table as table
from prfaas_agent.engine_stats import EngineStats, peers_of
from prfaas_agent.metric_table import PREFIX, Kind, Metric

_MAX_REASONS = 128
_FAMILIES: dict[Kind, Callable[..., Any]] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class TransferMetrics:
    """Renders the metrics of one node."""

    def __init__(self, stats: EngineStats, node: NodeSection) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_TransferCollector(stats, node))

    def render(self) -> bytes:
        """Return everything in the Prometheus text format."""
        return generate_latest(self._registry)


class _TransferCollector(Collector):
    """Series of peers that are gone are gone as well: nothing is kept here."""

    def __init__(self, stats: EngineStats, node: NodeSection) -> None:
        self._stats = stats
        self._node = node

    def collect(self) -> Iterator[Family]:
        """Return all families that have a series."""
        yield from _present(self._of_node())
        values = self._stats.values
        peers = peers_of(values)
        yield from _present(_of_counters(values))
        yield from _present(_of_peers(peers))
        yield from _present(_of_histograms(values, peers))

    def _of_node(self) -> Iterator[Family]:
        node, age_s = self._node, self._stats.age_s
        yield _single(table.ENGINE_UP, self._stats.is_fresh)
        if age_s is not None:
            yield _single(table.AGE, age_s)
        info = _family(table.NODE_INFO)
        info.add_metric([node.name, node.region], 1)
        yield info


def _of_counters(values: Mapping[str, Any]) -> Iterator[Family]:
    for metric in (*table.NODE_GAUGES, *table.COUNTERS):
        if _is_number(value := _look(values, metric.source)):
            yield _single(metric, value)
    rooms = _family(table.ROOMS)
    for source in table.DONE_SOURCES:
        if _is_number(values.get(source)):
            rooms.add_metric(["done", ""], values[source])
    for reason, count in _counts(values, table.FAILED_SOURCE):
        rooms.add_metric(["failed", reason], count)
    yield rooms
    for metric in table.REASON_COUNTERS:
        family = _family(metric)
        for reason, count in _counts(values, metric.source):
            family.add_metric([reason], count)
        yield family


def _of_peers(peers: list[tuple[str, Mapping[str, Any]]]) -> Iterator[Family]:
    for metric in table.PEER_GAUGES:
        family = _family(metric)
        for name, peer in peers:
            if _is_number(value := _look(peer, metric.source)):
                family.add_metric([name], value)
        yield family
    congestion = _family(table.CONGESTION)
    for name, peer in peers:
        found = _look(peer, table.CONGESTION.source)
        for state in Congestion if found else ():
            congestion.add_metric([name, state], found == state)
    yield congestion


def _of_histograms(
    values: Mapping[str, Any], peers: list[tuple[str, Mapping[str, Any]]]
) -> Iterator[Family]:
    for metric in table.ROOM_HISTOGRAMS:
        family = _family(metric)
        for raw in _look(values, metric.source) or ():
            _add_histogram(family, [str(raw[label]) for label in metric.labels], raw)
        yield family
    for metric in table.NODE_HISTOGRAMS:
        family = _family(metric)
        if raw := _look(values, metric.source):
            _add_histogram(family, [], raw)
        yield family
    family = _family(table.CHUNK_ACK)
    for name, peer in peers:
        if table.CHUNK_ACK.source in peer:
            _add_histogram(family, [name], peer[table.CHUNK_ACK.source])
    yield family


def _add_histogram(family: Any, labels: list[str], raw: Mapping[str, Any]) -> None:
    """Add a series; what is no histogram to us has none, and costs nobody the others."""
    try:
        histogram = Histogram.from_json(raw)
    except ValueError:
        return
    buckets, total = [], 0
    bounds = [*map(_bound, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, sum_value=histogram.sum)


def _bound(value: float) -> str:
    return repr(float(value))


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](PREFIX + metric.name, metric.help, labels=metric.labels)


def _single(metric: Metric, value: float) -> Any:
    family = _family(metric)
    family.add_metric([], value)
    return family


def _counts(values: Mapping[str, Any], source: str) -> list[tuple[str, float]]:
    raw = _look(values, source)
    counts = raw.items() if isinstance(raw, dict) else ()
    return [(reason, count) for reason, count in counts if _is_number(count)][:_MAX_REASONS]


def _look(values: Mapping[str, Any], source: str) -> Any:
    """Return the value at a place, keys with dots between them; None if there is none."""
    found: Any = values
    for key in source.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _is_number(value: object) -> bool:
    """Say whether a value can be shown: an integer beyond all floats cannot."""
    if not isinstance(value, int | float):
        return False
    with suppress(OverflowError):
        return math.isfinite(float(value))
    return False


def _present(families: Iterator[Family]) -> Iterator[Family]:
    return (family for family in families if family.samples)
