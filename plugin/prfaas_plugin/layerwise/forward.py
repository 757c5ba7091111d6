"""One forward pass of a prefill batch, and the layer events in it."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from prfaas.errors import TransferError
from prfaas.transfer.reasons import Reason
from prfaas_plugin.layerwise.counters import Fallback
from prfaas_plugin.layerwise.entry_map import LayerKey
from prfaas_plugin.layerwise.send_plan import SendPlan
from prfaas_plugin.layerwise.sends import Sends

if TYPE_CHECKING:
    from prfaas_plugin.layerwise.pipeline import LayerPipeline


class Forward:
    """Plans the batch's chunks at the first layer event, then releases layer after layer.

    Not earlier: SGLang sends a cached prefix inside `run_batch`, before the forward. `depth` counts
    nested attention backends; only the outermost one's return is an event.
    """

    def __init__(self, pipeline: "LayerPipeline", sends: Sends, requests: list[Any]) -> None:
        self.pipeline = pipeline
        self._sends = sends
        self._requests = requests
        self._plans: list[SendPlan] | None = None
        self._seen: set[LayerKey] = set()
        self._acked_before: int | None = None
        self.depth = 0

    def layer_written(self, key: LayerKey) -> None:
        """Have a layer of all chunks submitted once the device has computed it; hardly blocks."""
        started_s = time.perf_counter()
        if self._plans is None:
            self._plans = self.pipeline.plan(self._requests)
            self.pipeline.counters.plan_s += time.perf_counter() - started_s
        if self._plans and key not in self._seen and self.pipeline.expects(key):
            self._seen.add(key)
            self.pipeline.announce(partial(self._release, key))
        self.pipeline.counters.hook_s.observe(time.perf_counter() - started_s)

    def end(self) -> None:
        """The batch was launched; layers without an event are left to `send()`."""
        requests = self._requests if self._plans is None else self._plans
        if len(self._seen) < self.pipeline.num_layers and requests:
            text = f"{len(self._seen)} of {self.pipeline.num_layers} layers told of themselves"
            self.pipeline.counters.fall_back(Fallback.NO_LAYER_EVENT, text, num=len(requests))
        if self._seen:
            self.pipeline.announce(self._note_acked)

    def _release(self, key: LayerKey) -> None:
        """Submit one layer; on the announcer's thread."""
        if self._acked_before is None:
            self._acked_before = self._num_acked()
        for plan in self._plans or ():
            try:
                self.pipeline.counters.layers_early += plan.release(key, self._sends)
            except TransferError as error:
                # A room that is over needs nothing more; a full queue is asked again by `send()`.
                if error.reason == Reason.QUEUE_FULL:
                    self.pipeline.counters.fall_back(Fallback.QUEUE_FULL, error.detail)

    def _note_acked(self) -> None:
        if self._acked_before is not None:
            self.pipeline.counters.chunks_acked_early += self._num_acked() - self._acked_before

    def _num_acked(self) -> int:
        return int(self._sends.stats()["chunks_acked_total"])
