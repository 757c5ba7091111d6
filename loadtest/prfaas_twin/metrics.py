"""A twin's load as Prometheus text, under SGLang's names; what SGLang lacks, under the twin's.

Source: sglang 0.5.23 srt/observability/metrics_collector.py.
"""

from typing import Any

_GAUGES = {
    "num_running_reqs": "The number of running requests.",
    "num_waiting_reqs": "The number of requests in the waiting queue.",
    "num_used_tokens": "The number of used tokens.",
    "token_usage": "The token usage.",
    "cache_hit_rate": "The prefix cache hit rate.",
}
_NAMES = {"num_waiting_reqs": "num_queue_reqs"}
_QUEUES = {
    "prefill_bootstrap_queue_reqs": "num_prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs": "num_prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs": "num_decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs": "num_decode_transfer_queue_reqs",
}
_COUNTERS = {
    "prompt_tokens_total": "Number of prefill tokens processed.",
    "generation_tokens_total": "Number of generation tokens processed.",
    "cached_tokens_total": "Number of cached prompt tokens.",
    "num_requests_total": "Number of requests processed.",
    "num_aborted_requests_total": "Number of requests aborted.",
}


def render(load: dict[str, Any], *, model: str) -> str:
    """Return the text of `/metrics` for what `/v1/loads` tells."""
    label = f'{{model_name="{model}"}}'
    (first,) = load["loads"]
    lines: list[str] = []
    for key, text in _GAUGES.items():
        lines += _metric(_NAMES.get(key, key), "gauge", text, label, first[key])
    for key, name in _QUEUES.items():
        lines += _metric(name, "gauge", f"Requests in {key}.", label, first["disaggregation"][key])
    for key, text in _COUNTERS.items():
        lines += _metric(key, "counter", text, label, first["totals"][key])
    text = "Seconds of the profile's time in which it computed."
    busy_s = first["totals"]["busy_seconds_total"]
    lines += _metric("busy_seconds_total", "counter", text, label, busy_s, prefix="prfaas_twin_")
    return "\n".join(lines) + "\n"


def _metric(
    name: str, kind: str, text: str, label: str, value: float, *, prefix: str = "sglang:"
) -> list[str]:
    full = prefix + name
    return [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full}{label} {value}"]
