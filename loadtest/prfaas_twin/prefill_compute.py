"""The compute of a prefill instance: a queue, batches, and a prefix cache, on a profile's clock.

Behaves as `prfaas.sim.prefill.PrefillServer` does with one queue of its own, and tells besides
which layers of which tokens are written when.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from prfaas.blocks import HashedPrompt
from prfaas.profile import Curve
from prfaas_twin.clock import Clock


class PromptCache(Protocol):
    """What a prefill's compute needs of a prefix cache."""

    def match(self, prompt: HashedPrompt) -> int:
        """Return how many leading tokens of the prompt need not be computed."""

    def insert(self, prompt: HashedPrompt) -> None:
        """Keep a prompt that was computed."""

    def clear(self) -> None:
        """Forget everything."""


@dataclass(eq=False, slots=True)
class PrefillJob:
    """A prompt to compute. `cached_tokens` is its hit, set when its batch starts."""

    prompt: HashedPrompt
    cached_tokens: int = 0
    is_aborted: bool = False

    @property
    def uncached_tokens(self) -> int:
        """What is left to compute."""
        return self.prompt.num_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens `start` to `end` of a prompt, computed in one pass; `is_last` ends the prompt."""

    job: PrefillJob
    start: int
    end: int

    @property
    def is_last(self) -> bool:
        """Whether the prompt is done with it."""
        return self.end == self.job.prompt.num_tokens


class PrefillEvents(Protocol):
    """What the owner is told; an aborted job is left out."""

    def started(self, job: PrefillJob) -> None:
        """The job's batch begins; its `cached_tokens` are there in every layer."""

    def written(self, part: Part, layer: int) -> None:
        """A layer of some tokens is computed."""

    def done(self, job: PrefillJob) -> None:
        """All of the prompt is computed, and kept for later ones."""


@dataclass(frozen=True, slots=True)
class PrefillLimits:
    """`batch_tokens`: uncached tokens that a batch may have, of more than one prompt (0: one prompt
    at a time); `chunk_tokens`: the tokens of a forward pass, the last layer of which is written
    before the first of the next."""

    batch_tokens: int = 16384
    chunk_tokens: int = 8192
    layers: int = 8


@dataclass(slots=True)
class PrefillLoad:
    """What there is to do, and what was done."""

    waiting: int = 0
    running: int = 0
    backlog_tokens: int = 0
    prompts_total: int = 0
    computed_tokens_total: int = 0
    cached_tokens_total: int = 0
    busy_s_total: float = 0.0


class PrefillCompute:
    """First come, first served; a batch takes T_prefill of its uncached tokens."""

    def __init__(
        self,
        clock: Clock,
        prefill_s: Curve,
        cache: PromptCache,
        limits: PrefillLimits,
        events: PrefillEvents,
    ) -> None:
        self.slowness = 1.0
        self.cache = cache
        self._clock = clock
        self._prefill_s = prefill_s
        self._limits = limits
        self._events = events
        self._queue: deque[PrefillJob] = deque()
        self._batch: list[PrefillJob] = []
        self._done = PrefillLoad()

    def load(self) -> PrefillLoad:
        """Return counters; those in `_total` only grow."""
        done = self._done
        queued = sum(job.prompt.num_tokens for job in self._queue)
        return PrefillLoad(
            len(self._queue),
            len(self._batch),
            queued + sum(job.uncached_tokens for job in self._batch),
            done.prompts_total,
            done.computed_tokens_total,
            done.cached_tokens_total,
            done.busy_s_total,
        )

    def submit(self, job: PrefillJob) -> None:
        """Queue a prompt."""
        self._queue.append(job)
        if not self._batch:
            self._start()

    def abort(self, job: PrefillJob) -> None:
        """Forget a job: one that is being computed takes its time, and is told of no more."""
        job.is_aborted = True
        if job in self._queue:
            self._queue.remove(job)

    def _start(self) -> None:
        tokens = self._fill_batch()
        if not self._batch:
            return
        now_s = self._clock.now_s
        for job in self._batch:
            self._events.started(job)
        for parts, begin_s, end_s in self._passes(tokens):
            step_s = (end_s - begin_s) / self._limits.layers
            for layer in range(self._limits.layers - 1):
                when_s = now_s + begin_s + (layer + 1) * step_s
                self._clock.at(when_s, self._write, parts, layer)
            self._clock.at(now_s + end_s, self._write, parts, self._limits.layers - 1)
        service_s = self._prefill_s.at(tokens) * self.slowness
        self._done.busy_s_total += service_s
        self._clock.at(now_s + service_s, self._finish)

    def _fill_batch(self) -> int:
        """Move the head of the queue into the empty batch and return the tokens to compute."""
        tokens = 0
        while self._queue:
            job = self._queue[0]
            job.cached_tokens = self.cache.match(job.prompt)
            if self._batch and tokens + job.uncached_tokens > self._limits.batch_tokens:
                break
            self._batch.append(self._queue.popleft())
            tokens += job.uncached_tokens
        return tokens

    def _passes(self, tokens: int) -> list[tuple[list[Part], float, float]]:
        """Cut the batch into forward passes: what each computes, and when it begins and ends."""
        passes: list[tuple[list[Part], float, float]] = []
        begin_s, before = 0.0, 0
        for parts in _cut(self._batch, self._limits.chunk_tokens):
            before += sum(part.end - part.start for part in parts)
            end_s = self._prefill_s.at(before) * self.slowness
            passes.append((parts, begin_s, end_s))
            begin_s = end_s
        assert before == tokens
        return passes

    def _write(self, parts: list[Part], layer: int) -> None:
        for part in parts:
            if not part.job.is_aborted:
                self._events.written(part, layer)

    def _finish(self) -> None:
        done, self._batch = self._batch, []
        for job in done:
            self.cache.insert(job.prompt)
            self._done.prompts_total += 1
            self._done.computed_tokens_total += job.uncached_tokens
            self._done.cached_tokens_total += job.cached_tokens
        if self._queue:
            self._start()
        for job in done:
            if not job.is_aborted:
                self._events.done(job)


@dataclass(slots=True)
class _Pass:
    """A forward pass being filled."""

    room: int
    parts: list[Part] = field(default_factory=list)


def _cut(batch: list[PrefillJob], chunk_tokens: int) -> list[list[Part]]:
    """Return what each forward pass computes: the batch's uncached tokens, one after another."""
    passes = [_Pass(chunk_tokens)]
    for job in batch:
        at = job.cached_tokens
        while at < job.prompt.num_tokens:
            if not passes[-1].room:
                passes.append(_Pass(chunk_tokens))
            last = passes[-1]
            count = min(last.room, job.prompt.num_tokens - at)
            last.parts.append(Part(job, at, at + count))
            last.room -= count
            at += count
    return [each.parts for each in passes]
