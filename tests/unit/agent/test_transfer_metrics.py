"""What an agent shows of counters that make no sense: the others."""

import json
import math
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from prfaas.config import NodeSection
from prfaas.records import Role
from prfaas.transfer.histogram import Histogram
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.transfer_metrics import TransferMetrics

NODE = NodeSection("a-prefill-0", Role.PREFILL, "a")


def shown(values: dict[str, object]) -> set[str]:
    stats = EngineStats(Path("s"), node=NODE.name)
    stats.take(json.dumps(values).encode())
    text = TransferMetrics(stats, NODE).render().decode()
    found = {family.name for family in text_string_to_metric_families(text)}
    return {name.removeprefix("prfaas_transfer_") for name in found}


ALWAYS = {"engine_up", "counters_age_seconds", "node_info"}


@pytest.mark.parametrize(
    "value", [pytest.param(10**400, id="huge"), math.nan, math.inf, "7", None, []]
)
def test_a_value_that_is_no_number_has_no_series(value: object) -> None:
    assert shown({"rooms_open": value, "chunks_queued": 3}) == ALWAYS | {"chunks_queued"}


def test_what_is_no_histogram_has_no_series() -> None:
    good = Histogram((1.0, 2.0)).to_json()
    labels = {"outcome": "done", "priority": "foreground"}
    bad = {**good, "bounds": [2**53, 2**53 + 1]}
    values = {"room_s": [{**labels, **bad}], "room_bytes": [{**labels, **good}]}
    assert shown({"histograms": values}) == ALWAYS | {"room_bytes"}
