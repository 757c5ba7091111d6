"""A prefill instance: a queue, one batch at a time, and a prefix cache."""

from collections import deque
from collections.abc import Callable

from prfaas.profile import Curve
from prfaas.records import NodeRecord
from prfaas.sim.cache import PrefixCache
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.request import SimRequest

Entry = tuple[SimRequest, int, int, "PrefillServer"]
"""A request, its attempt (the entry is void when the request is at another), the tokens counted for
it, and the server that counts them."""
Queue = deque[Entry]


class PrefillServer:
    """Computes prompts first come, first served; each batch takes T_prefill of its uncached tokens.

    A batch is as many queued prompts as fit into `batch_tokens`, one at least (0: always one, as
    in the paper's equations). Servers may be given one queue together: a pool with a central queue.
    `on_start(request, seconds)` and `on_done(request)` are the owner's.
    """

    def __init__(
        self,
        record: NodeRecord,
        events: Events,
        prefill_s: Curve,
        cache: PrefixCache,
        pool: IndexedNodes,
        *,
        queue: "Queue | None" = None,
        batch_tokens: int = 0,
        on_start: Callable[[SimRequest, float], None],
        on_done: Callable[[SimRequest], None],
    ) -> None:
        self.record = record
        self.cache = cache
        self.pool = pool
        self.in_flight = 0
        self.backlog_tokens = 0
        self.ticket = 0
        self.slowness = 1.0
        self.up = True
        self.draining: Callable[[], None] | None = None
        self._events = events
        self._prefill_s = prefill_s.at
        self._queue: Queue = deque() if queue is None else queue
        self._shares_queue = queue is not None
        self._batch_tokens = batch_tokens
        self._on_start = on_start
        self._on_done = on_done
        self._running: list[Entry] = []
        self._life = 0

    def reserve(self, request: SimRequest) -> None:
        """Count a request that routing sends here; `submit` or `unreserve` follows."""
        cached = self.cache.match(request.chain, request.prompt_tokens) if request.chain else 0
        request.work_tokens = request.prompt_tokens - cached
        self.count(request.work_tokens, 1)

    def unreserve(self, request: SimRequest) -> None:
        """Take back a `reserve` of a request that did not get here."""
        self.count(-request.work_tokens, -1)

    def submit(self, request: SimRequest) -> None:
        """Queue a reserved request that has got here."""
        self._queue.append((request, request.attempt, request.work_tokens, self))
        if not self._running:
            self._start()

    def fail(self) -> list[SimRequest]:
        """Die: return the requests that were here; the cache is lost."""
        self._life += 1
        self.up = False
        lost = self._running if self._shares_queue else [*self._running, *self._queue]
        self._running = []
        if not self._shares_queue:
            self._queue.clear()
        for _, _, tokens, _ in lost:
            self.backlog_tokens -= tokens
            self.in_flight -= 1
        self.cache.clear()
        self.pool.leave(self)
        return [request for request, attempt, _, _ in lost if request.attempt == attempt]

    def recover(self) -> None:
        """Be there again, empty."""
        self.up = True
        self.pool.join(self)
        if self._queue:
            self._start()

    def drain(self, on_empty: Callable[[], None]) -> None:
        """Take nothing new, and tell when what is here is done."""
        self.pool.leave(self)
        self.draining = on_empty
        self._check_empty()

    def count(self, tokens: int, requests: int) -> None:
        """Change the load that routing sees; for the servers of one queue."""
        self.backlog_tokens += tokens
        self.in_flight += requests
        self.pool.touch(self)

    def _start(self) -> None:
        """Take the next batch from the queue, if there is one."""
        tokens = 0
        queue, batch = self._queue, self._running
        while queue:
            request, attempt, counted_tokens, counter = queue[0]
            if request.attempt != attempt:
                queue.popleft()
                counter.count(-counted_tokens, -1)
                continue
            if batch and tokens + counted_tokens > self._batch_tokens:
                break
            queue.popleft()
            if counter is not self:
                counter.count(-counted_tokens, -1)
                self.count(counted_tokens, 1)
            batch.append((request, attempt, counted_tokens, self))
            tokens += self._uncached(request)
        if batch:
            service_s = self._prefill_s(tokens) * self.slowness
            self._events.at(self._events.now_s + service_s, self._finish, self._life)
            for request, _, _, _ in batch:
                self._on_start(request, service_s)

    def _uncached(self, request: SimRequest) -> int:
        tokens = request.prompt_tokens
        if request.chain:
            tokens -= self.cache.match(request.chain, tokens)
        request.uncached_tokens = tokens
        return tokens

    def _finish(self, life: int) -> None:
        if life != self._life:
            return
        done, self._running = self._running, []
        for request, _, tokens, _ in done:
            self.backlog_tokens -= tokens
            self.in_flight -= 1
            if request.chain:
                self.cache.insert(request.chain)
        self.pool.touch(self)
        if self._queue and not (self._shares_queue and self.draining):
            self._start()
        for request, attempt, _, _ in done:
            if request.attempt == attempt:
                self._on_done(request)
        if self.draining is not None:
            self._check_empty()

    def _check_empty(self) -> None:
        if self.draining is not None and not self.in_flight:
            on_empty, self.draining = self.draining, None
            on_empty()
