"""What layer-wise pipelining did and what it cost, for the plugin's stats."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

logger = logging.getLogger(__name__)


class Fallback(StrEnum):
    """Why a request's prefill chunk, or a layer of it, was left to the chunk-wise `send()`."""

    UNSUPPORTED_POOL = "unsupported_pool"
    UNSUPPORTED_CACHE = "unsupported_cache"
    UNSUPPORTED_PARALLELISM = "unsupported_parallelism"
    UNSUPPORTED_SCHEDULE = "unsupported_schedule"
    SPECULATIVE = "speculative"
    NO_DESTINATION = "no_destination"
    NO_LAYER_EVENT = "no_layer_event"
    QUEUE_FULL = "queue_full"
    HOOK_EXCEPTION = "hook_exception"


@dataclass(slots=True)
class PipelineCounters:
    """Totals since start; a reason of `fallbacks` is logged when it is first met.

    chunks: prefill chunks of requests that were planned layer by layer.
    layers_early, layers_late: layers of them submitted while the forward ran, and by `send()`.
    chunks_acked_early: transfer chunks acknowledged between a batch's first layer and its last.
    hook_events, hook_s, hook_max_s: layer events, and the scheduler's time in them.
    plan_s: the part of `hook_s` that went into index arrays, once per batch.
    """

    chunks: int = 0
    layers_early: int = 0
    layers_late: int = 0
    chunks_acked_early: int = 0
    hook_events: int = 0
    hook_s: float = 0.0
    hook_max_s: float = 0.0
    plan_s: float = 0.0
    fallbacks: Counter[str] = field(default_factory=Counter)

    def fall_back(self, reason: Fallback, detail: str = "", *, num: int = 1) -> None:
        """Count `num` requests that go chunk-wise, or layers of them."""
        if not num:
            return
        if not self.fallbacks[reason]:
            text = "some KV is sent chunk by chunk instead of layer by layer"
            logger.warning("%s: %s %s", text, reason, detail)
        self.fallbacks[reason] += num

    def note_event(self, seconds: float) -> None:
        """Count the scheduler's time in one layer event."""
        self.hook_events += 1
        self.hook_s += seconds
        self.hook_max_s = max(self.hook_max_s, seconds)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able totals."""
        return {
            "chunks_total": self.chunks,
            "layers_early_total": self.layers_early,
            "layers_late_total": self.layers_late,
            "chunks_acked_early_total": self.chunks_acked_early,
            "hook_events_total": self.hook_events,
            "hook_s_total": self.hook_s,
            "hook_max_s": self.hook_max_s,
            "plan_s_total": self.plan_s,
            "fallbacks_total": dict(self.fallbacks),
        }
