"""The two sweeps of a measurement: prefill over lengths, decode over batches."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from prfaas.errors import StateError
from prfaas.profile.samples import DecodeSample, PrefillSample, Samples
from prfaas_cli.engine_client import EngineClient, TimedStream

#: A prompt of which more than this share was cached says nothing of prefill.
_CACHED_SHARE = 0.02
_TRIES = 5
_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to measure. `vocabulary` is the range of token ids that prompts are drawn from."""

    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    repeat: int
    output_tokens: int
    context_tokens: int
    vocabulary: tuple[int, int]


@dataclass(slots=True)
class Measured:
    """What a sweep has found so far; whoever interrupts it keeps this."""

    prefill: list[PrefillSample] = field(default_factory=list)
    decode: list[DecodeSample] = field(default_factory=list)

    def samples(self) -> Samples:
        """Return it as it is now."""
        return Samples(tuple(self.prefill), tuple(self.decode))


class Sweep:
    """Measures one server. `say` tells a person what was found."""

    def __init__(
        self, client: EngineClient, plan: SweepPlan, measured: Measured, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._plan = plan
        self._measured = measured
        self._say = say
        self._random = np.random.default_rng()

    async def run(self) -> None:
        """Warm up, then sweep.

        Raises:
            StateError: the server went away or refuses.
        """
        await self._client.stream(self._prompt(self._plan.lengths[0]), tokens=_WARM_UP_TOKENS)
        self._say("warmed up")
        for tokens in self._plan.lengths:
            found = [await self._prefill(tokens) for _ in range(self._plan.repeat)]
            self._say(f"prefill of {tokens} tokens: {_range(found)}")
        for batch in self._plan.batches:
            if not await self._decode_runs(batch):
                self._say(
                    f"decode batch {batch}: the server did not run so many at once; left out,"
                    " with all larger ones (a larger --output-tokens may help)"
                )
                break

    async def _prefill(self, tokens: int) -> float:
        """One token is asked for, which prefill itself gives: there is no decode step in it."""
        for _ in range(_TRIES):
            stream = await self._client.stream(self._prompt(tokens), tokens=1)
            if stream.cached_tokens <= _CACHED_SHARE * tokens:
                self._measured.prefill.append(PrefillSample(tokens, stream.ttft_s))
                return stream.ttft_s
        raise StateError(
            f"{self._client.url}: {stream.cached_tokens} of {tokens} tokens of a random prompt were"
            " cached, time after time; start the server with --disable-radix-cache"
        )

    async def _decode_runs(self, batch: int) -> bool:
        found = []
        for _ in range(self._plan.repeat):
            step_s = simultaneous_step_s(await self._streams(batch))
            if step_s is None:
                return False
            found.append(step_s)
            sample = DecodeSample(batch, step_s, self._plan.context_tokens)
            self._measured.decode.append(sample)
        self._say(f"decode of {batch} at once: a step of {_range(found)}")
        return True

    async def _streams(self, batch: int) -> list[TimedStream]:
        tokens = self._plan.output_tokens
        prompts = [self._prompt(self._plan.context_tokens) for _ in range(batch)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._client.stream(prompt, tokens=tokens))
                    for prompt in prompts
                ]
        except* StateError as failures:
            first = failures.exceptions[0]
        else:
            return [task.result() for task in tasks]
        raise first

    def _prompt(self, tokens: int) -> list[int]:
        low, high = self._plan.vocabulary
        return [int(token) for token in self._random.integers(low, high, size=tokens)]


def simultaneous_step_s(streams: Sequence[TimedStream]) -> float | None:
    """Return the median time per token while all streams decode; None if they never do.

    >>> one = TimedStream(0.0, 0, ((1.0, 1), (2.0, 2), (3.0, 3)))
    >>> late = TimedStream(0.0, 0, ((1.9, 1), (3.0, 2)))
    >>> simultaneous_step_s([one, late])
    1.05
    """
    begin_s = max(stream.arrivals[0][0] for stream in streams)
    end_s = min(stream.arrivals[-1][0] for stream in streams)
    steps = [
        (now_s - before_s) / (count - before)
        for stream in streams
        for (before_s, before), (now_s, count) in zip(
            stream.arrivals, stream.arrivals[1:], strict=False
        )
        if before_s >= begin_s and now_s <= end_s and count > before
    ]
    return median(steps) if steps else None


def _range(found: Sequence[float]) -> str:
    spread = f" ({_shown(min(found))} to {_shown(max(found))})" if len(found) > 1 else ""
    return f"{_shown(median(found))}{spread}"


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
