"""A decode instance: continuous batching, every request of the batch one token per step."""

from bisect import insort
from collections import deque
from collections.abc import Callable

from prfaas.records import NodeRecord
from prfaas.sim.cache import NodeCache
from prfaas.sim.events import Events
from prfaas.sim.pool import IndexedNodes
from prfaas.sim.request import SimRequest


class DecodeServer:
    """Holds at most `len(steps_s) - 1` requests; others wait first come, first served.

    It begins as one that is down: `recover` makes it part of its pool.
    `steps_s[b]` is the seconds of a step with b requests. All requests of a batch have done the
    same number of steps since they came, so a request ends when the count of steps reaches its own
    mark: a few steps per request, whatever the number of tokens. One that comes joins at once,
    where an engine would end its step first: half a step too early in the mean.
    `on_first(request, first_token_s)` and `on_done(request)` are the owner's.
    """

    def __init__(
        self,
        record: NodeRecord,
        events: Events,
        steps_s: list[float],
        cache: NodeCache,
        pool: IndexedNodes,
        *,
        on_first: Callable[[SimRequest, float], None],
        on_done: Callable[[SimRequest], None],
    ) -> None:
        self.record = record
        self.cache = cache
        self.pool = pool
        self.in_flight = 0
        self.backlog_tokens = 0
        self.rank = 0
        self.listed = -1
        self.up = False
        self.draining: Callable[[], None] | None = None
        self.slowness = 1.0
        self._events = events
        self._steps_s = steps_s
        self._on_first = on_first
        self._on_done = on_done
        self._waiting: deque[SimRequest] = deque()
        # By the step at which a request ends, the first one last. A sorted list, as its few entries
        # take fewer looks into memory than a heap's.
        self._active: list[tuple[float, int, SimRequest]] = []
        self._steps = 0.0
        self._since_s = 0.0
        self._step_s = 0.0
        self._wake_s = 0.0
        self._version = 0

    def expect(self) -> None:
        """Count a request that routing sent here; its KV cache will come."""
        self.in_flight += 1

    def forget(self) -> None:
        """Take back an `expect` of a request that will not come."""
        self.in_flight -= 1
        self.pool.touch(self)
        self._check_empty()

    def admit(self, request: SimRequest) -> None:
        """Decode a request whose KV cache is here."""
        if len(self._active) < len(self._steps_s) - 1:
            self._advance()
            self._begin(request)
            self._settle()
        else:
            self._waiting.append(request)

    def set_slowness(self, slowness: float) -> None:
        """Take that many times longer for each step."""
        self._advance()
        self.slowness = slowness
        self._settle()

    def fail(self) -> list[SimRequest]:
        """Die: return the requests that were here; `decoded_tokens` says how far each came."""
        self._advance()
        for mark, _, request in self._active:
            left = -mark - self._steps
            request.decoded_tokens = max(int(request.output_tokens - left), 0)
        lost = [request for _, _, request in sorted(self._active, key=_by_index)]
        lost.extend(self._waiting)
        self._active.clear()
        self._waiting.clear()
        self._version += 1
        self._wake_s = 0.0
        self.in_flight -= len(lost)  # what is expected still counts, until it is given back
        self.up = False
        self.pool.leave(self)
        self._check_empty()
        return lost

    def recover(self) -> None:
        """Be there (again), empty."""
        self.up = True
        if self.draining is None:
            self.pool.join(self)

    def drain(self, on_empty: Callable[[], None]) -> None:
        """Take nothing new, and tell when what is here, or expected, is done."""
        self.pool.leave(self)
        self.draining = on_empty
        self._check_empty()

    def _advance(self) -> None:
        now_s = self._events.now_s
        if self._active:
            self._steps += (now_s - self._since_s) / self._step_s
        self._since_s = now_s

    def _begin(self, request: SimRequest) -> None:
        steps = request.output_tokens - request.decoded_tokens
        insort(self._active, (-(self._steps + steps), -request.index, request))
        step_s = self._steps_s[len(self._active)] * self.slowness
        self._on_first(request, self._events.now_s + step_s)

    def _settle(self) -> None:
        """Find when the next request ends, after the batch changed."""
        active = self._active
        if not active:
            self._version += 1
            return
        step_s = self._steps_s[len(active)] * self.slowness
        left = -active[-1][0] - self._steps
        wake_s = self._since_s + left * step_s if left > 0 else self._since_s
        if step_s != self._step_s or wake_s < self._wake_s or self._wake_s <= self._since_s:
            self._step_s = step_s
            self._wake_s = wake_s
            self._version = version = self._version + 1
            self._events.at(wake_s, self._on_wake, version)

    def _on_wake(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        active, waiting = self._active, self._waiting
        reached = self._steps + 1e-6
        ended = []
        while active and -active[-1][0] <= reached:
            ended.append(active.pop()[2])
        while waiting and len(active) < len(self._steps_s) - 1:
            self._begin(waiting.popleft())
        self.in_flight -= len(ended)
        self._wake_s = self._since_s
        self._settle()
        self.pool.touch(self)
        for request in ended:
            self._on_done(request)
        if self.draining is not None:
            self._check_empty()

    def _check_empty(self) -> None:
        if self.draining is not None and not self.in_flight:
            on_empty, self.draining = self.draining, None
            on_empty()


def _by_index(entry: tuple[float, int, SimRequest]) -> int:
    return -entry[1]
