"""A schedule: every request of a campaign with its time, drawn before anything is sent.

That it does not depend on what the deployment does is what keeps the load open: a slow deployment
gets the same requests at the same times.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from prfaas.errors import ConfigError
from prfaas.sim.generate import ConstantOutput, generate
from prfaas.workload import Chain, Trace
from prfaas_loadtest.workloads.workload import Workload

MAX_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `at_s` is in real seconds from the campaign's begin.

    `chain` names the prefixes that it shares, within its `workload` (an index). A request that
    `follows` another (an index in the schedule; -1: none) comes `think_s` after that was answered,
    and its `at_s` means nothing.
    """

    index: int
    at_s: float
    prompt_tokens: int
    output_tokens: int
    workload: int
    tenant: str
    chain: Chain = ()
    follows: int = -1
    think_s: float = 0.0

    def to_json(self) -> dict[str, object]:
        """Return what `from_json` takes."""
        return {
            "index": self.index,
            "at_s": self.at_s,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "workload": self.workload,
            "tenant": self.tenant,
            "chain": self.chain,
            "follows": self.follows,
            "think_s": self.think_s,
        }

    @classmethod
    def from_json(cls, row: "dict[str, object]") -> "Request":
        """Return the request of a row."""
        chain = row["chain"]
        assert isinstance(chain, list | tuple)
        fields = {**row, "chain": tuple((int(name), int(end)) for name, end in chain)}
        return cls(**fields)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Schedule:
    """All requests; `index` is each one's place."""

    requests: tuple[Request, ...]

    @property
    def span_s(self) -> float:
        """Seconds to the last arrival that is known beforehand."""
        return max(request.at_s for request in self.requests)

    @property
    def rate_per_s(self) -> float:
        """Requests per second over that span."""
        return len(self.requests) / self.span_s if self.span_s > 0 else 0.0

    def faster(self, factor: float) -> "Schedule":
        """Return the same requests with all times divided by the factor; pauses stay."""
        return Schedule(tuple(replace(row, at_s=row.at_s / factor) for row in self.requests))

    def trace(self) -> Trace:
        """Return the schedule as a trace, for the simulator and for `prfaasctl trace`; without what
        is shared."""
        rows = self.requests
        count = len(rows)
        tenants = tuple(dict.fromkeys(row.tenant for row in rows))
        arrivals = np.array([row.at_s for row in rows])
        return Trace(
            arrival_s=arrivals - arrivals[0],
            prompt_tokens=np.array([row.prompt_tokens for row in rows], dtype=np.int64),
            output_tokens=np.array([row.output_tokens for row in rows], dtype=np.int64),
            block_hashes=np.zeros(0, dtype=np.int64),
            block_offsets=np.zeros(count + 1, dtype=np.int64),
            block_tokens=0,
            tenant=np.array([tenants.index(row.tenant) for row in rows], dtype=np.int32),
            tenant_names=tenants,
        )


def make_schedule(workloads: Sequence[Workload], *, requests: int, seed: int) -> Schedule:
    """Draw so many requests, divided among the workloads by their rates.

    Each workload is drawn by itself: another one beside it, or another rate of it, changes when its
    requests come and not what they ask.

    Raises:
        ConfigError: the number is out of range, or a trace has fewer.
    """
    if not len(workloads) <= requests <= MAX_REQUESTS:
        raise ConfigError(f"requests = {requests}: allowed: {len(workloads)} to {MAX_REQUESTS}")
    total = sum(workload.rate_per_s for workload in workloads)
    rows: list[Request] = []
    for number, workload in enumerate(workloads):
        share = workload.rate_per_s / total if total > 0 else 1 / len(workloads)
        count = max(1, round(requests * share))
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        rows += _draw(workload, number, count, own_seed)
    return Schedule(_ordered(rows))


def format_schedule(schedule: Schedule) -> Iterator[bytes]:
    """Yield a JSON line for each request."""
    for request in schedule.requests:
        yield orjson.dumps(request.to_json()) + b"\n"


def _draw(workload: Workload, number: int, count: int, seed: int) -> list[Request]:
    """Return a workload's requests; `index` and `follows` count within it."""
    if workload.trace is not None:
        times, prompts, outputs, chains = _of_trace(workload, workload.trace, count, seed)
    else:
        assert workload.lengths is not None
        made = generate(
            workload.lengths,
            workload.arrivals,
            workload.outputs or ConstantOutput(1),
            count=count,
            seed=seed,
            sharing=workload.sharing,
        )
        times, prompts, outputs = made.arrival_s, made.prompt_tokens, made.output_tokens
        chains = list(made.chains) or [()] * count
    columns = zip(times.tolist(), prompts.tolist(), outputs.tolist(), chains, strict=True)
    rows = [
        Request(index, at_s, prompt, max(output, 1), number, workload.tenant, chain)
        for index, (at_s, prompt, output, chain) in enumerate(columns)
    ]
    return _thoughtful(rows, workload.think_s, seed) if workload.think_s > 0 else rows


def _of_trace(
    workload: Workload, trace: Trace, count: int, seed: int
) -> tuple[
    "np.ndarray[tuple[int], np.dtype[np.float64]]",
    "np.ndarray[tuple[int], np.dtype[np.int64]]",
    "np.ndarray[tuple[int], np.dtype[np.int64]]",
    list[Chain],
]:
    if count > len(trace):
        raise ConfigError(f"requests: {count} of a trace: allowed: up to its {len(trace)}")
    rng = np.random.default_rng(seed)
    outputs = trace.output_tokens[:count]
    if workload.outputs is not None:
        outputs = workload.outputs.sample(rng, count)
    chains: list[Chain] = [()] * count
    if trace.block_tokens:
        chains = [chain for chain, _ in zip(trace.chains(), range(count), strict=False)]
    times = workload.arrivals.times(rng, count)
    return times, trace.prompt_tokens[:count], outputs, chains


def _thoughtful(rows: list[Request], think_s: float, seed: int) -> list[Request]:
    """Return the requests so that later turns of a conversation follow the one before."""
    rng = np.random.default_rng([seed, 1])
    asked: dict[int, int] = {}
    found = []
    for row in rows:
        before = asked.get(row.chain[-2][0], -1) if len(row.chain) > 1 else -1
        pause_s = float(rng.exponential(think_s))
        found.append(replace(row, follows=before, think_s=pause_s) if before >= 0 else row)
        if row.chain:
            asked[row.chain[-1][0]] = row.index
    return found


def _ordered(rows: list[Request]) -> tuple[Request, ...]:
    """Return all workloads' requests in the order of their times, numbered anew."""
    ordered = sorted(rows, key=lambda row: (row.at_s, row.workload, row.index))
    places = {(row.workload, row.index): place for place, row in enumerate(ordered)}
    return tuple(
        replace(
            row,
            index=place,
            follows=places[row.workload, row.follows] if row.follows >= 0 else -1,
        )
        for place, row in enumerate(ordered)
    )
