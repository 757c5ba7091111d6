"""One direction of a link between regions: many transfers that share it fairly, as a fluid."""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from prfaas.sim.events import Events

_NEVER = math.inf


class Flow:
    """One transfer on a link. Made by `FairLink.open`; its fields are the link's own."""

    __slots__ = (
        "argument", "bytes", "cap", "closed", "done", "link", "mark", "opened_s", "produced_per_s",
        "remaining", "serial", "sharing", "weight",
    )  # fmt: skip

    def __init__(
        self,
        link: "FairLink",
        size_bytes: float,
        weight: float,
        done: Callable[[Any], None],
        argument: Any,
    ) -> None:
        self.link = link
        self.bytes = size_bytes
        self.remaining = size_bytes
        self.weight = weight
        self.cap = _NEVER  # bytes per second and unit of weight
        self.opened_s = 0.0
        self.produced_per_s = 0.0
        self.sharing = False
        self.mark = 0.0  # while sharing: service level at which it ends; else: time of `remaining`
        self.serial = 0  # of its newest entry in any heap; older entries are void
        self.closed = False
        self.done = done
        self.argument = argument


class FairLink:
    """A link that its flows share max-min fairly by weight, none faster than its cap.

    A flow that is still being produced (layer-wise prefill) is capped at the rate of production;
    once released it takes what it can get. A flow that fell behind while the link was full does not
    catch up before it is released: the one simplification, and a pessimistic one. A change costs
    O(log flows), amortised, by water-filling over flows in order of their caps.
    """

    def __init__(self, events: Events, bytes_per_s: float) -> None:
        self._events = events
        self.capacity = bytes_per_s
        self.sent_bytes = 0.0
        self._ready_bytes = 0.0
        self._production = 0.0
        self._level = _NEVER  # bytes per second and unit of weight of sharing flows
        self._service = 0.0  # integral of the level
        self._since_s = 0.0
        self._capped_rate = 0.0
        self._capped_count = 0
        self._share_weight = 0.0
        self._share_count = 0
        self._serial = 0
        self._capped: list[tuple[float, int, Flow]] = []  # by cap, highest first
        self._shared: list[tuple[float, int, Flow]] = []  # by cap, lowest first
        self._ends: list[tuple[float, int, Flow]] = []  # of sharing flows, by service level
        self._wake_s = _NEVER
        self._wake_version = 0

    def open(
        self,
        size_bytes: float,
        done: Callable[[Any], None],
        argument: Any = None,
        *,
        weight: float = 1.0,
        produced_per_s: float = _NEVER,
    ) -> Flow:
        """Begin a transfer and call `done` at its end.

        With `produced_per_s` finite its bytes come into being at that rate, and its end cannot come
        before `release`.
        """
        self._advance()
        flow = Flow(self, size_bytes, weight, done, argument)
        if produced_per_s < _NEVER:
            flow.opened_s = self._since_s
            flow.produced_per_s = produced_per_s
            flow.cap = produced_per_s / weight
            self._production += produced_per_s
        else:
            self._ready_bytes += size_bytes
        self._share(flow)
        self._settle()
        return flow

    def release(self, flow: Flow) -> None:
        """Note that all bytes of a produced flow exist now."""
        self._advance()
        self._leave(flow)
        self._note_produced(flow)
        flow.cap = _NEVER
        self._share(flow)
        self._settle()

    def cancel(self, flow: Flow) -> None:
        """Forget a flow that has not ended; `done` is not called."""
        if flow.closed:
            return
        self._advance()
        self._leave(flow)
        self._note_produced(flow)
        self._ready_bytes -= flow.remaining
        flow.closed = True
        self._settle()

    def set_capacity(self, bytes_per_s: float) -> None:
        """Change the rate of the link; 0 is an outage."""
        self._advance()
        self.capacity = bytes_per_s
        self._settle()

    @property
    def flows(self) -> int:
        """The number of open flows."""
        return self._capped_count + self._share_count

    def reading(self) -> tuple[float, float]:
        """Return all bytes sent up to now, and those that exist and are not sent yet."""
        self._advance()
        return self.sent_bytes, max(self._ready_bytes - self.sent_bytes, 0.0)

    def sent_by_now(self) -> float:
        """Return the same without any effect: a reader must not change what is simulated."""
        rate = self._capped_rate
        if self._share_count:
            rate += self._level * self._share_weight
        return self.sent_bytes + rate * max(self._events.now_s - self._since_s, 0.0)

    def _advance(self) -> None:
        now_s = self._events.now_s
        passed_s = now_s - self._since_s
        if passed_s > 0:
            sent = self._capped_rate
            if self._share_count:
                self._service += self._level * passed_s
                sent += self._level * self._share_weight
            self.sent_bytes += sent * passed_s
            self._ready_bytes += self._production * passed_s
            self._since_s = now_s

    def _note_produced(self, flow: Flow) -> None:
        """Count the bytes of a produced flow that were not ready yet as ready."""
        if flow.produced_per_s:
            passed_s = self._since_s - flow.opened_s
            self._ready_bytes += flow.bytes - flow.produced_per_s * passed_s
            self._production -= flow.produced_per_s
            flow.produced_per_s = 0.0

    def _share(self, flow: Flow) -> None:
        """Let the flow take the level of all."""
        flow.sharing = True
        flow.mark = self._service + flow.remaining / flow.weight
        flow.serial = self._serial = self._serial + 1
        self._share_weight += flow.weight
        self._share_count += 1
        if flow.cap < _NEVER:
            heappush(self._shared, (flow.cap, flow.serial, flow))
        else:
            heappush(self._ends, (flow.mark, flow.serial, flow))

    def _cap(self, flow: Flow) -> None:
        """Let the flow run at its cap."""
        flow.sharing = False
        flow.mark = self._since_s
        flow.serial = self._serial = self._serial + 1
        self._capped_rate += flow.cap * flow.weight
        self._capped_count += 1
        heappush(self._capped, (-flow.cap, flow.serial, flow))

    def _leave(self, flow: Flow) -> None:
        """Take the flow out of both sets and bring `remaining` up to date."""
        flow.serial = 0
        if flow.sharing:
            left = (flow.mark - self._service) * flow.weight
            flow.remaining = left if left > 0 else 0.0
            self._share_count -= 1
            self._share_weight -= flow.weight
            if not self._share_count:
                self._begin_service()
        else:
            rate = flow.cap * flow.weight
            left = flow.remaining - rate * (self._since_s - flow.mark)
            flow.remaining = left if left > 0 else 0.0
            self._capped_count -= 1
            self._capped_rate = self._capped_rate - rate if self._capped_count else 0.0

    def _begin_service(self) -> None:
        """Measure service from 0 again while no flow refers to it: a sum that grows gets coarse."""
        self._service = 0.0
        self._share_weight = 0.0
        self._shared.clear()
        self._ends.clear()

    def _settle(self) -> None:
        """Find the level again, and when the next flow ends."""
        capped, shared = self._capped, self._shared
        while True:
            free = self.capacity - self._capped_rate
            if self._share_count:
                level = free / self._share_weight if free > 0 else 0.0
            else:
                level = _NEVER if free >= -1e-9 * self.capacity and self.capacity > 0 else 0.0
            while capped and capped[0][2].serial != capped[0][1]:
                heappop(capped)
            if capped and -capped[0][0] > level:
                self._switch(heappop(capped)[2], self._share)
                continue
            while shared and shared[0][2].serial != shared[0][1]:
                heappop(shared)
            if shared and shared[0][0] < level * (1 - 1e-9):
                self._switch(heappop(shared)[2], self._cap)
                continue
            break
        self._level = level
        if not self._serial & 63:
            self._prune()
        self._wake()

    def _switch(self, flow: Flow, to: Callable[[Flow], None]) -> None:
        self._leave(flow)
        to(flow)

    def _prune(self) -> None:
        """Drop void entries before they outnumber the flows."""
        limit = 4 * self.flows + 64
        for heap in (self._capped, self._shared, self._ends):
            if len(heap) > limit:
                heap[:] = [entry for entry in heap if entry[2].serial == entry[1]]
                heapify(heap)

    def _wake(self) -> None:
        ends = self._ends
        while ends and ends[0][2].serial != ends[0][1]:
            heappop(ends)
        if not ends or self._level <= 0:
            self._wake_version += 1
            self._wake_s = _NEVER
            return
        left = ends[0][0] - self._service
        wake_s = self._since_s + left / self._level if left > 0 else self._since_s
        if wake_s != self._wake_s:
            self._wake_s = wake_s
            self._wake_version = version = self._wake_version + 1
            self._events.at(wake_s, self._on_wake, version)

    def _on_wake(self, version: int) -> None:
        if version != self._wake_version:
            return
        self._wake_s = _NEVER
        self._advance()
        ends = self._ends
        # The clock is a float: what is left may be a rounding error of the time passed.
        reached = self._service + self._level * max(self._since_s, 1.0) * 1e-12
        ended = []
        while ends and (ends[0][2].serial != ends[0][1] or ends[0][0] <= reached):
            _, serial, flow = heappop(ends)
            if flow.serial == serial:
                self._leave(flow)
                flow.remaining = 0.0
                flow.closed = True
                ended.append(flow)
        self._settle()
        for flow in ended:
            flow.done(flow.argument)
