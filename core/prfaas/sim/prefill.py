"""A prefill instance: a queue, one batch at a time, and a prefix cache."""

from collections import deque
from collections.abc import Callable

from prfaas.profile import Curve
from prfaas.records import NodeRecord
from prfaas.sim.cache import NodeCache
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.request import SimRequest

Entry = tuple[SimRequest, int, int, "PrefillServer"]
"""A request, its attempt (the entry is void when the request is at another), the tokens counted for
it, and the server that counts them."""


class PrefillQueue:
    """What waits for one prefill server, or for those of a region together.

    `servers` are up, `idle` are those of them that nothing waits for and that take new work.
    """

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.servers: dict[PrefillServer, None] = {}
        self.idle: dict[PrefillServer, None] = {}

    def leaves_to(self, server: "PrefillServer") -> bool:
        """Say whether a draining server is needed: nobody else is there to take what waits."""
        return all(other is server or other.draining is not None for other in self.servers)


class PrefillServer:
    """Computes prompts first come, first served; each batch takes T_prefill of its uncached tokens.

    A batch is as many queued prompts as fit into `batch_tokens`, one at least (0: always one, as
    in the paper's equations). Servers may be given one queue together: a pool with a central queue,
    whose head goes to the first server that is free. It begins as one that is down: `recover` makes
    it part of its pool. `on_start(request, seconds)` and `on_done(request)` are the owner's.
    """

    def __init__(
        self,
        record: NodeRecord,
        events: Events,
        prefill_s: Curve,
        cache: NodeCache,
        pool: IndexedNodes,
        *,
        queue: PrefillQueue | None = None,
        batch_tokens: int = 0,
        on_start: Callable[[SimRequest, float], None],
        on_done: Callable[[SimRequest], None],
    ) -> None:
        self.record = record
        self.cache = cache
        self.pool = pool
        self.in_flight = 0
        self.backlog_tokens = 0
        self.rank = 0
        self.listed = -1
        self.slowness = 1.0
        self.up = False
        self.draining: Callable[[], None] | None = None
        self._events = events
        self._prefill_s = prefill_s.at
        self._queue = PrefillQueue() if queue is None else queue
        self._batch_tokens = batch_tokens
        self._on_start = on_start
        self._on_done = on_done
        self._running: list[Entry] = []
        self._life = 0
        self._left = False

    def reserve(self, request: SimRequest) -> None:
        """Count a request that routing sends here; `submit` or `unreserve` follows."""
        cached = self.cache.lookup(request.chain, request.prompt_tokens) if request.chain else 0
        request.work_tokens = request.prompt_tokens - cached
        self.count(request.work_tokens, 1)

    def unreserve(self, request: SimRequest) -> None:
        """Take back a `reserve` of a request that did not get here."""
        self.count(-request.work_tokens, -1)

    def submit(self, request: SimRequest) -> None:
        """Queue a reserved request that has got here."""
        queue = self._queue
        queue.entries.append((request, request.attempt, request.work_tokens, self))
        if not self._running:
            self._start()
        elif queue.idle:
            next(iter(queue.idle)).take_next()

    def set_slowness(self, slowness: float) -> None:
        """Take that many times longer from the next batch on."""
        self.slowness = slowness

    def fail(self) -> list[SimRequest]:
        """Die: return the requests that were here; the cache is lost.

        What waits for other servers too stays where it is, while there is one.
        """
        self._life += 1
        self.up = False
        self.pool.leave(self)
        self.cache.lose_node()
        queue, lost = self._queue, self._running
        self._running = []
        queue.idle.pop(self, None)
        queue.servers.pop(self, None)
        if not queue.servers:
            lost.extend(queue.entries)
            queue.entries.clear()
        for _, _, tokens, counter in lost:
            counter.count(-tokens, -1)
        self._check_empty()
        for other in list(queue.servers):  # those that drain may be needed now
            other.take_next()
        return [request for request, attempt, _, _ in lost if request.attempt == attempt]

    def recover(self) -> None:
        """Be there (again), empty."""
        self.up = True
        self._queue.servers[self] = None
        if self.draining is None:
            self.pool.join(self)
        self.take_next()

    def drain(self, on_empty: Callable[[], None]) -> None:
        """Take nothing new, and tell when what is here, or on its way here, is done."""
        self.pool.leave(self)
        self.cache.hide()
        self.draining = on_empty
        self._queue.idle.pop(self, None)
        self._check_empty()

    def count(self, tokens: int, requests: int) -> None:
        """Change the load that routing sees; for the servers of one queue."""
        self.backlog_tokens += tokens
        self.in_flight += requests
        if requests < 0:
            self.pool.touch(self)
        if self.draining is not None:
            self._check_empty()

    def take_next(self) -> None:
        """Begin what waits, or be idle, unless busy."""
        if self._running:
            return
        if self._queue.entries and (self.draining is None or self._queue.leaves_to(self)):
            self._start()
        elif self.draining is None:
            self._queue.idle[self] = None

    def _start(self) -> None:
        """Take the next batch from the queue, where all may be void."""
        tokens = self._fill_batch()
        batch = self._running
        if batch:
            self._queue.idle.pop(self, None)
            service_s = self._prefill_s(tokens) * self.slowness
            self._events.at(self._events.now_s + service_s, self._finish, self._life)
            for request, _, _, _ in batch:
                self._on_start(request, service_s)
        elif self.draining is None:
            self._queue.idle[self] = None

    def _fill_batch(self) -> int:
        """Move the head of the queue into the empty batch and return the tokens to compute."""
        tokens = 0
        entries, batch = self._queue.entries, self._running
        while entries:
            request, attempt, counted_tokens, counter = entry = entries[0]
            if request.attempt != attempt:
                entries.popleft()
                counter.count(-counted_tokens, -1)
                continue
            if batch and tokens + counted_tokens > self._batch_tokens:
                break
            entries.popleft()
            if counter is not self:
                self.count(counted_tokens, 1)
                counter.count(-counted_tokens, -1)
                entry = (request, attempt, counted_tokens, self)
            batch.append(entry)
            tokens += self._uncached(request)
        return tokens

    def _uncached(self, request: SimRequest) -> int:
        tokens = request.prompt_tokens
        if request.chain:
            tokens -= self.cache.lookup(request.chain, tokens)
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
        self.take_next()
        for request, attempt, _, _ in done:
            if request.attempt == attempt:
                self._on_done(request)
        if self.draining is not None:
            self._check_empty()

    def _check_empty(self) -> None:
        if self.draining is not None and not self.in_flight and not self._left:
            self._left = True
            self._queue.servers.pop(self, None)
            self.draining()
