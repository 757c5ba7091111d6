"""Moves of prefixes between regions as counters of the gateway."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from prfaas_gateway.move_log import MoveLog


class MoveMetrics(Collector):
    """Reads a `MoveLog` whenever it is scraped."""

    def __init__(self, registry: CollectorRegistry, log: MoveLog) -> None:
        self._log = log
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the families."""
        moves = CounterMetricFamily(
            "prfaas_prefix_moves",
            "Prefixes moved between regions' pools, by why and what became of it.",
            labels=["region", "cause", "outcome"],
        )
        for (region, cause, outcome), count in self._log.outcomes.items():
            moves.add_metric([region, cause, outcome], count)
        yield moves
        for name, text, counts in (
            ("prfaas_prefix_moved_bytes", "Bytes of moved prefixes.", self._log.moved_bytes),
            (
                "prfaas_prefix_moved_tokens",
                "Tokens that can be resumed from since, and could not before.",
                self._log.moved_tokens,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=["source", "destination"])
            for (source, destination), count in counts.items():
                family.add_metric([source, destination], count)
            yield family
        verdicts = CounterMetricFamily(
            "prfaas_prefix_move_verdicts",
            "What was decided about prefixes that another region has more of.",
            labels=["verdict"],
        )
        for verdict, count in self._log.verdicts.items():
            verdicts.add_metric([verdict], count)
        yield verdicts
