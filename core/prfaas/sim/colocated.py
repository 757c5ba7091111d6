"""An instance that prefills and decodes at once, by chunked prefill.

While a prompt is prefilled every iteration computes one chunk of it and one step of all decodes
beside it, so each slows the other down.

Source: Sarathi-Serve (OSDI 2024) §4.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from prfaas.profile import Curve
from prfaas.records import NodeRecord
from prfaas.sim.cache import NodeCache
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.request import SimRequest


class ColocatedServer:
    """Prefill and decode facets of one instance, with the methods of both kinds of server.

    Prompts are prefilled first come, first served, each in chunks of `chunk_tokens`, whose time is
    their share of T_prefill of the whole prompt. `steps_s[b]` is the seconds of a decode step with
    b requests, of which it holds at most `len(steps_s) - 1`; prefill waits while it is full.
    """

    def __init__(
        self,
        record: NodeRecord,
        events: Events,
        prefill_s: Curve,
        steps_s: list[float],
        cache: NodeCache,
        pool: IndexedNodes,
        *,
        chunk_tokens: int,
        on_start: Callable[[SimRequest, float], None],
        on_done: Callable[[SimRequest], None],
        on_first: Callable[[SimRequest, float], None],
        on_decoded: Callable[[SimRequest], None],
    ) -> None:
        self.record = record
        self.cache = cache
        self.pool = pool
        self.in_flight = 0
        self.backlog_tokens = 0
        self.rank = 0
        self.listed = -1
        self.slowness = 1.0
        self.up = True
        self._events = events
        self._prefill_s = prefill_s.at
        self._steps_s = steps_s
        self._chunk_tokens = chunk_tokens
        self._on_start = on_start
        self._on_done = on_done
        self._on_first = on_first
        self._on_decoded = on_decoded
        self._queue: deque[SimRequest] = deque()
        self._prompt: SimRequest | None = None
        self._chunks_left = 0.0
        self._chunk_s = 0.0
        self._active: list[tuple[float, int, SimRequest]] = []  # by the step at which it ends
        self._steps = 0.0
        self._since_s = 0.0
        self._iteration_s = 0.0
        self._version = 0

    # As a prefill server.

    def reserve(self, request: SimRequest) -> None:
        """Count a request that routing sends here."""
        cached = self.cache.lookup(request.chain, request.prompt_tokens) if request.chain else 0
        request.work_tokens = request.prompt_tokens - cached
        self.backlog_tokens += request.work_tokens
        self.in_flight += 1
        self.pool.touch(self)

    def unreserve(self, request: SimRequest) -> None:
        """Take back a `reserve` of a request that did not get here."""
        self.backlog_tokens -= request.work_tokens
        self.in_flight -= 1
        self.pool.touch(self)

    def submit(self, request: SimRequest) -> None:
        """Queue a reserved request that has got here."""
        self._advance()
        self._queue.append(request)
        self._settle()

    # As a decode server.

    def expect(self) -> None:
        """Do nothing: `reserve` counted the request for both phases."""

    def forget(self) -> None:
        """Do nothing, as `expect`."""

    def admit(self, request: SimRequest) -> None:
        """Decode a request that was prefilled here."""
        self._advance()
        steps = request.output_tokens - request.decoded_tokens
        heappush(self._active, (self._steps + steps, request.index, request))
        self._settle()
        self._on_first(request, self._events.now_s + self._iteration_s)

    # Faults; a colocated node keeps its role.

    def drain(self, on_empty: Callable[[], None]) -> None:
        """Refuse: there is no role to change to."""
        del on_empty
        raise AssertionError(f"{self.record.name}: a colocated node has no other role")

    def set_slowness(self, slowness: float) -> None:
        """Take that many times longer for everything."""
        self._advance()
        self.slowness = slowness
        self._settle()

    def fail(self) -> list[SimRequest]:
        """Die: return the requests that were here; the cache is lost."""
        self._advance()
        lost = [] if self._prompt is None else [self._prompt]
        lost.extend(self._queue)
        for mark, _, request in sorted(self._active, key=lambda entry: entry[1]):
            left = mark - self._steps
            request.decoded_tokens = max(int(request.output_tokens - left), 0)
            lost.append(request)
        self._prompt = None
        self._queue.clear()
        self._active.clear()
        self._version += 1
        self.in_flight = self.backlog_tokens = 0
        self.up = False
        self.cache.lose_node()
        self.pool.leave(self)
        return lost

    def recover(self) -> None:
        """Be there again, empty."""
        self.up = True
        self._since_s = self._events.now_s
        self.pool.join(self)

    # Time passing.

    def _advance(self) -> None:
        """Do what was done since the last change."""
        now_s = self._events.now_s
        if self._iteration_s > 0:
            iterations = (now_s - self._since_s) / self._iteration_s
            if self._active:
                self._steps += iterations
            if self._prompt is not None:
                self._chunks_left = max(self._chunks_left - iterations, 0.0)
        self._since_s = now_s

    def _settle(self) -> None:
        """Start the next prompt if one can, and find when something ends."""
        if self._prompt is None and self._queue and len(self._active) < len(self._steps_s) - 1:
            self._start(self._queue.popleft())
        step_s = self._steps_s[min(len(self._active), len(self._steps_s) - 1)]
        chunk_s = self._chunk_s if self._prompt is not None else 0.0
        self._iteration_s = (step_s + chunk_s) * self.slowness
        ends = [self._active[0][0] - self._steps] if self._active else []
        if self._prompt is not None:
            ends.append(self._chunks_left)
        self._version = version = self._version + 1
        if ends:
            wake_s = self._since_s + max(min(ends), 0.0) * self._iteration_s
            self._events.at(wake_s, self._on_wake, version)

    def _start(self, request: SimRequest) -> None:
        tokens = request.prompt_tokens
        if request.chain:
            tokens -= self.cache.lookup(request.chain, tokens)
        request.uncached_tokens = tokens
        self._prompt = request
        self._chunks_left = tokens / self._chunk_tokens
        prefill_s = self._prefill_s(tokens)
        self._chunk_s = prefill_s / self._chunks_left
        self._on_start(request, prefill_s * self.slowness)

    def _on_wake(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        prefilled = None
        if self._prompt is not None and self._chunks_left <= 1e-9:
            prefilled, self._prompt = self._prompt, None
            self.backlog_tokens -= prefilled.work_tokens
            if prefilled.chain:
                self.cache.insert(prefilled.chain)
        decoded = []
        while self._active and self._active[0][0] <= self._steps + 1e-6:
            decoded.append(heappop(self._active)[2])
        self.in_flight -= len(decoded)
        if prefilled is not None:
            self._on_done(prefilled)  # which admits it, and so settles
        self._settle()
        self.pool.touch(self)
        for request in decoded:
            self._on_decoded(request)
