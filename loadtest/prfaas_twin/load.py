"""A twin's load in the form of SGLang's `/v1/loads`."""

import datetime
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prfaas_twin.prefill_role import PrefillRole

if TYPE_CHECKING:
    from prfaas_twin.instance import TwinInstance

VERSION = "0.5.23"
_QUEUES = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
    "decode_retracted_queue_reqs",
)


@dataclass(slots=True)
class Counts:
    """Requests since the start."""

    requests: int = 0
    aborted: int = 0


def load_of(twin: "TwinInstance") -> dict[str, Any]:
    """Return the load; SGLang's fields, and `totals` for the counters."""
    section = twin.model.section
    entry: dict[str, Any] = {
        "timestamp": time.time(),
        "dp_rank": 0,
        "max_total_num_tokens": section.context_tokens,
        "max_running_requests": twin.model.max_running_requests,
        **_by_role(twin),
        "disaggregation": {"mode": str(twin.role_name), **_queues(twin)},
    }
    return {
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(),
        "version": VERSION,
        "accelerator": None,
        "num_accelerators": twin.model.profile.gpus,
        "loads": [entry],
    }


def _by_role(twin: "TwinInstance") -> dict[str, Any]:
    totals = {
        "num_requests_total": twin.counts.requests,
        "num_aborted_requests_total": twin.counts.aborted,
    }
    if isinstance(twin.role, PrefillRole):
        prefill = twin.role.compute.load()
        prompt_tokens = prefill.computed_tokens_total + prefill.cached_tokens_total
        return {
            "num_running_reqs": prefill.running,
            "num_waiting_reqs": prefill.waiting,
            "num_waiting_uncached_tokens": prefill.backlog_tokens,
            "num_used_tokens": prefill.backlog_tokens,
            "token_usage": 0.0,
            "cache_hit_rate": prefill.cached_tokens_total / max(1, prompt_tokens),
            "totals": totals
            | {
                "prompt_tokens_total": prompt_tokens,
                "cached_tokens_total": prefill.cached_tokens_total,
                "generation_tokens_total": prefill.prompts_total,
                "busy_seconds_total": prefill.busy_s_total,
            },
        }
    decode = twin.role.compute.load()
    return {
        "num_running_reqs": decode.running,
        "num_waiting_reqs": decode.waiting,
        "num_waiting_uncached_tokens": 0,
        "num_used_tokens": round(twin.role.memory_use * twin.model.section.context_tokens),
        "token_usage": twin.role.memory_use,
        "cache_hit_rate": 0.0,
        "totals": totals
        | {
            "prompt_tokens_total": 0,
            "cached_tokens_total": 0,
            "generation_tokens_total": decode.tokens_total,
            "busy_seconds_total": decode.busy_s_total,
        },
    }


def _queues(twin: "TwinInstance") -> dict[str, int]:
    queues = dict.fromkeys(_QUEUES, 0)
    if isinstance(twin.role, PrefillRole):
        queues["prefill_bootstrap_queue_reqs"] = twin.role.waiting_for_decode
        queues["prefill_inflight_queue_reqs"] = twin.role.in_flight
    else:
        queues["decode_prealloc_queue_reqs"] = twin.role.waiting_for_memory
        queues["decode_transfer_queue_reqs"] = twin.role.in_transfer
    return queues
