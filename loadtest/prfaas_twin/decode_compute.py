"""The compute of a decode instance: continuous batching, a token per request and step."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from prfaas.profile import DecodeProfile
from prfaas_twin.clock import Clock, Timer


@dataclass(eq=False, slots=True)
class Run:
    """A request whose cache is here. `made` of `wanted` output tokens are made."""

    wanted: int
    made: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all tokens are made."""
        return self.made >= self.wanted


@dataclass(frozen=True, slots=True)
class DecodeLoad:
    """What there is to do, and what was done."""

    waiting: int
    running: int
    steps_total: int
    tokens_total: int
    busy_s_total: float


class DecodeCompute:
    """At most `max_batch` requests at a time; others wait, first come, first served.

    As in SGLang, the first token is the prefill's: it is out as soon as a request joins the batch,
    which happens between steps. Every step then makes one token of each, so a request of n tokens
    takes n - 1 steps. `on_tokens(run)` is called after `run.made` grew.
    """

    def __init__(
        self, clock: Clock, profile: DecodeProfile, on_tokens: Callable[[Run], None]
    ) -> None:
        self.slowness = 1.0
        self.max_batch = profile.max_batch
        self._clock = clock
        self._step_s = [profile.step_s.at(batch) for batch in range(1, profile.max_batch + 1)]
        self._on_tokens = on_tokens
        self._waiting: deque[Run] = deque()
        self._active: dict[Run, None] = {}
        self._step: Timer | None = None
        self._steps = 0
        self._tokens = 0
        self._busy_s = 0.0

    def load(self) -> DecodeLoad:
        """Return counters; those in `_total` only grow."""
        waiting, running = len(self._waiting), len(self._active)
        return DecodeLoad(waiting, running, self._steps, self._tokens, self._busy_s)

    def admit(self, run: Run) -> None:
        """Decode a request, as soon as the batch has room and its step is over."""
        self._waiting.append(run)
        if self._step is None:
            self._begin_step()

    def abort(self, run: Run) -> None:
        """Forget a request; the step that it is in goes on as it is."""
        if run in self._active:
            del self._active[run]
        elif run in self._waiting:
            self._waiting.remove(run)

    def _begin_step(self) -> None:
        self._step = None
        while self._waiting and len(self._active) < self.max_batch:
            run = self._waiting.popleft()
            self._active[run] = None
            self._make(run)
        if self._active:
            step_s = self._step_s[len(self._active) - 1] * self.slowness
            self._busy_s += step_s
            self._step = self._clock.at(self._clock.now_s + step_s, self._end_step)

    def _end_step(self) -> None:
        self._steps += 1
        for run in list(self._active):
            if run in self._active:  # a callback may have aborted it
                self._make(run)
        self._begin_step()

    def _make(self, run: Run) -> None:
        run.made += 1
        self._tokens += 1
        if run.is_done:
            del self._active[run]
        self._on_tokens(run)
