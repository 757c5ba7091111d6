"""A twin's metrics are Prometheus text with the numbers of its load."""

import math

from prometheus_client.parser import text_string_to_metric_families

from prfaas_twin.metrics import render

QUEUES = ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer")
LOAD = {
    "num_running_reqs": 3,
    "num_waiting_reqs": 4,
    "num_used_tokens": 5,
    "token_usage": 0.25,
    "cache_hit_rate": 0.5,
    "disaggregation": {f"{name}_queue_reqs": 6 for name in QUEUES},
    "totals": {
        "prompt_tokens_total": 7,
        "generation_tokens_total": 8,
        "cached_tokens_total": 9,
        "num_requests_total": 10,
        "num_aborted_requests_total": 11,
        "busy_seconds_total": 12.5,
    },
}


def test_every_number_of_the_load_is_told_once() -> None:
    text = render({"loads": [LOAD]}, model="m")
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    told = {sample.name: sample.value for sample in samples}
    assert len(told) == len(samples) == 5 + 4 + 6
    assert told["sglang:num_queue_reqs"] == 4
    assert told["sglang:num_decode_transfer_queue_reqs"] == 6
    assert told["sglang:generation_tokens_total"] == 8
    assert math.isclose(told["prfaas_twin_busy_seconds_total"], 12.5)
    assert all(sample.labels == {"model_name": "m"} for sample in samples)
