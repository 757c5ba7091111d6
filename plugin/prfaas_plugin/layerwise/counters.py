"""What layer-wise pipelining did and what it cost, for the plugin's stats."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prfaas.transfer.histogram import ROUND_TRIP_S, Histogram

_EVENT_S = (10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 20e-3)

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
    hook_s: the scheduler's time in layer events; the first of a batch makes the index arrays.
    plan_s: the part of it that went into these.
    drain_s: from a prompt's end of prefill until the decode had everything, in both modes.
    """

    chunks: int = 0
    layers_early: int = 0
    layers_late: int = 0
    chunks_acked_early: int = 0
    hook_s: Histogram = field(default_factory=lambda: Histogram(_EVENT_S))
    plan_s: float = 0.0
    drain_s: Histogram = field(default_factory=lambda: Histogram(ROUND_TRIP_S))
    fallbacks: Counter[str] = field(default_factory=Counter)

    def fall_back(self, reason: Fallback, detail: str = "", *, num: int = 1) -> None:
        """Count `num` requests that go chunk-wise, or layers of them."""
        if not num:
            return
        if not self.fallbacks[reason]:
            text = "some KV is sent chunk by chunk instead of layer by layer"
            logger.warning("%s: %s %s", text, reason, detail)
        self.fallbacks[reason] += num

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able totals."""
        return {
            "chunks_total": self.chunks,
            "layers_early_total": self.layers_early,
            "layers_late_total": self.layers_late,
            "chunks_acked_early_total": self.chunks_acked_early,
            "hook_s": self.hook_s.to_json(),
            "plan_s_total": self.plan_s,
            "drain_s": self.drain_s.to_json(),
            "fallbacks_total": dict(self.fallbacks),
        }
