"""Layer-wise pipelining of a prefill's rooms: what the manager and the hooks talk to."""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prfaas_plugin.layerwise.counters import Fallback, PipelineCounters
from prfaas_plugin.layerwise.entry_map import LayerKey
from prfaas_plugin.layerwise.forward import Forward
from prfaas_plugin.layerwise.held_frees import HeldFrees
from prfaas_plugin.layerwise.ledger import RoomLedger
from prfaas_plugin.layerwise.planner import SendPlanner, UnsupportedEngineError, planner_of
from prfaas_plugin.layerwise.readiness import Announcer, Readiness
from prfaas_plugin.layerwise.send_plan import SendPlan
from prfaas_plugin.layerwise.sends import Sends

logger = logging.getLogger(__name__)

Indices = NDArray[np.int64]

HOLD_FAILED = "hold_failed"


class LayerPipeline:
    """The rooms of one prefill worker; for the scheduler's thread.

    `is_live(room)` says whether a room may still be sent into.
    """

    def __init__(
        self,
        manager: Any,
        *,
        sends: Sends,
        readiness: Readiness,
        is_live: Callable[[int], bool],
        make_planner: Callable[[Any, Any, Readiness], SendPlanner] = planner_of,
    ) -> None:
        self.counters = PipelineCounters()
        self._manager = manager
        self._sends = sends
        self._readiness = readiness
        self._is_live = is_live
        self._make_planner = make_planner
        self._rooms: dict[int, RoomLedger] = {}
        self._planner: SendPlanner | None = None
        self._refusal: UnsupportedEngineError | None = None
        self._finished_s: dict[int, float] = {}
        self._tokens = itertools.count()
        self._announcer = Announcer(self.broke)

    # ---- hooks ---------------------------------------------------------------------------------

    def start(self, scheduler: Any) -> bool:
        """Learn the engine's pools at its first batch; return True if they are fit for this."""
        if self._planner is None and self._refusal is None:
            try:
                self._planner = self._make_planner(scheduler, self._manager, self._readiness)
            except UnsupportedEngineError as refusal:
                self._refusal = refusal
        return self._planner is not None

    def forward(self, batch: Any) -> Forward | None:
        """Return the batch's layer events; None if nothing of it goes layer by layer."""
        requests = [req for req in batch.reqs if self._is_ours(req)]
        ready = [req for req in requests if not req.pending_bootstrap]
        self.counters.fall_back(Fallback.NO_DESTINATION, num=len(requests) - len(ready))
        if self._refusal is not None:
            self.counters.fall_back(self._refusal.reason, str(self._refusal), num=len(ready))
            return None
        return Forward(self, self._sends, ready) if ready else None

    def broke(self, error: Exception) -> None:
        """Count an exception of our own; what was not submitted is left to `send()`."""
        if not self.counters.fallbacks[Fallback.HOOK_EXCEPTION]:
            logger.error("layer-wise sending failed", exc_info=error)
        self.counters.fall_back(Fallback.HOOK_EXCEPTION, repr(error))

    def hold(self, room: int) -> HeldFrees | None:
        """Begin to collect what SGLang frees, if pages of the room may be on their way.

        Where SGLang collects already, its pages are not kept, and `send()` notices if any moved.
        """
        ledger = self._rooms.get(room)
        if ledger is None or self._planner is None:
            return None
        allocator = self._planner.allocator
        return HeldFrees(allocator) if allocator.free_group is None else None

    def keep(self, room: int, held: HeldFrees) -> None:
        """End `hold()`; what was freed stays until the room is over."""
        held.end(keep=True)
        ledger = self._rooms.get(room)
        if ledger is None:
            held.release()
            return
        if not ledger.has_states:
            held.release(only_window=True)
        if held:
            ledger.hold(held)

    def abandon(self, room: int, error: Exception) -> None:
        """Give up a room whose pages may have been freed while they are read."""
        self.broke(error)
        self._sends.abort(room, HOLD_FAILED, repr(error))

    # ---- forward -------------------------------------------------------------------------------

    def plan(self, requests: list[Any]) -> list[SendPlan]:
        """Return the plans of a batch that runs; a request that cannot be planned has none."""
        plans = []
        for req in requests:
            try:
                plan = self._plan(req)
            # One request's tables must not spoil the others': `send()` covers it.
            except Exception as error:
                self.broke(error)
                continue
            if plan is not None:
                plans.append(plan)
        self.counters.chunks += len(plans)
        return plans

    @property
    def num_layers(self) -> int:
        """How many layer events of a forward release something."""
        return len(self._planner.parts) if self._planner is not None else 0

    def expects(self, key: LayerKey) -> bool:
        """Say whether a layer's event releases anything."""
        return self._planner is not None and key in self._planner.parts

    def announce(self, action: Callable[[], None]) -> None:
        """Have `action` run, on another thread, once the device has done what is queued."""
        if not self._announcer.announce(self._readiness.mark(), action):
            self.counters.fall_back(Fallback.QUEUE_FULL, "layer events")

    # ---- manager -------------------------------------------------------------------------------

    def send(self, room: int, groups: Mapping[str, Indices], start: int, wait_event: Any) -> None:
        """Submit what SGLang sends and was not submitted layer by layer.

        `groups` are SGLang's indices, `start` is the position of its KV pages. They are written,
        or will be once `wait_event` (of a CUDA stream) has come.
        Raises: TransferError as `RoomLedger.take` and `SendNode.submit` do; then the room must be
            aborted.
        """
        ledger = self._rooms.get(room) or RoomLedger()
        is_written = wait_event is None
        rest, num_late = ledger.take(groups, start, self._sends, is_written=is_written)
        self.counters.layers_late += num_late
        ready = None if is_written else next(self._tokens)
        for group, first, items in rest:
            if items.size:
                self._sends.submit(room, group=group, start=first, items=items, ready=ready)
        if ready is not None:
            mark = partial(self._sends.mark_ready, room, ready)
            if not self._announcer.announce(wait_event.query, mark):
                wait_event.synchronize()
                mark()

    def finishing(self, room: int) -> None:
        """All of the room was computed and submitted."""
        self._finished_s[room] = time.monotonic()

    def sent(self, room: int) -> None:
        """The decode has all of the room; from any thread."""
        finished_s = self._finished_s.pop(room, None)
        if finished_s is not None:
            self.counters.drain_s.observe(time.monotonic() - finished_s)

    def forget(self, room: int) -> None:
        """The room is over, and nothing of it is read any more."""
        self._finished_s.pop(room, None)
        ledger = self._rooms.pop(room, None)
        if ledger is not None:
            ledger.release()

    def close(self) -> None:
        """Stop the thread; nothing is sent layer by layer any more."""
        self._announcer.close()

    def _is_ours(self, req: Any) -> bool:
        sender = getattr(req, "disagg_kv_sender", None)
        return getattr(sender, "kv_mgr", None) is self._manager

    def _plan(self, req: Any) -> SendPlan | None:
        assert self._planner is not None
        room, sender = int(req.bootstrap_room), req.disagg_kv_sender
        if sender.conclude_state is not None or not self._is_live(room):
            return None
        ledger = self._rooms.get(room) or RoomLedger()
        plan = self._planner.plan(req, ledger.next_position(sender.curr_idx))
        if plan is not None:
            ledger.add(plan)
            self._rooms[room] = ledger
        return plan
