"""docs/metrics.md lists every metric there is, and none besides; no counter is left out."""

from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from prfaas.transfer.receiver_rooms import ReceiveCounters
from prfaas.transfer.sender_rooms import SendCounters
from prfaas_agent import metric_table as table
from prfaas_agent.metric_table import ALL, Kind
from prfaas_gateway.metrics import Metrics
from prfaas_gateway.move_log import MoveLog
from prfaas_gateway.move_metrics import MoveMetrics

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"
UNITS = {"seconds": "seconds", "bytes": "bytes", "ratio": "0 to 1", "tokens": "tokens"}


def unit(name: str) -> str:
    """Return the unit of a metric: its name ends in it."""
    word = name.removesuffix("_total")
    if word == f"{table.PREFIX}compression_ratio":
        return "a factor"
    if word.endswith("_per_second"):
        return "bytes per second"
    return UNITS.get(word.rpartition("_")[2], "")


def agent_rows() -> list[str]:
    return [row(m.full_name, str(m.kind), m.labels, m.help) for m in ALL]


def gateway_rows() -> list[str]:
    found = []
    for metric in Metrics()._registry._collector_to_names:
        name = metric._name + ("_total" if metric._type == "counter" else "")  # type: ignore[attr-defined]
        labels = metric._labelnames  # type: ignore[attr-defined]
        found.append(row(name, metric._type, labels, metric._documentation))  # type: ignore[attr-defined]
    for family in MoveMetrics(CollectorRegistry(), MoveLog()).collect():
        labels = family._labelnames
        found.append(row(f"{family.name}_total", family.type, labels, family.documentation))
    return found


def row(name: str, kind: str, labels: tuple[str, ...], text: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(labels)} | {unit(name)} | {text} |"


def test_the_page_has_every_metric_and_no_other() -> None:
    written = [line for line in DOC.read_text().splitlines() if line.startswith("| `prfaas_")]
    assert sorted(written) == sorted([*agent_rows(), *gateway_rows()])


def test_names_are_those_of_the_field() -> None:
    names = [metric.full_name for metric in ALL]
    assert len(set(names)) == len(names)
    for metric in ALL:
        assert metric.help.endswith(".")
        assert "_total" not in metric.name
        if metric.kind is Kind.HISTOGRAM:
            assert metric.name.endswith(("_seconds", "_bytes"))


@pytest.mark.parametrize("counters", [SendCounters, ReceiveCounters])
def test_every_counter_of_the_machines_has_a_metric(counters: type) -> None:
    """A new counter needs a line in `prfaas_agent.metric_table` and in docs/metrics.md."""
    known = {metric.source for metric in ALL} | {*table.DONE_SOURCES, table.FAILED_SOURCE}
    missing = {f"{field.name}_total" for field in fields(counters)} - known
    assert missing == set()
