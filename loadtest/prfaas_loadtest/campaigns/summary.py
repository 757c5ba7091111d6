"""What a campaign comes to: latencies from the time at which requests were due, goodput, order.

Nothing looks better than it was: a request that we gave up or that was under way counts with what
it has waited; one that failed before its first token has no latency, as what fails at once would
pass for quick. Neither of them nor a wrong answer meets the SLO. All results are in real seconds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import StateError
from prfaas.sim.summary import Percentiles, Slo
from prfaas_loadtest.campaigns.sample import Outcome, Sample

Floats = NDArray[np.float64]

_GROWTH = 0.005
"""A queue grows when TTFT does by so many seconds per second, as for the simulator."""
_ROUNDING = 1e-6
_NAN = float("nan")
_WAITED = (Outcome.OPEN, Outcome.LATE)


@dataclass(frozen=True, slots=True)
class Columns:
    """Samples as arrays, real seconds; NaN where there is none."""

    due_s: Floats
    sent_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats
    first_s: Floats
    last_s: Floats
    prompt_tokens: Floats
    answered: NDArray[np.bool_]
    offloaded: NDArray[np.bool_]

    @classmethod
    def of(cls, samples: Sequence[Sample], dilation: float) -> "Columns":
        """Return the arrays."""

        def times(values: list[float]) -> Floats:
            array = np.array(values, dtype=np.float64)
            return np.where(array < 0, _NAN, array / dilation)

        due_s = np.array([sample.due_s for sample in samples]) / dilation
        sent_s = times([sample.sent_s for sample in samples])
        first_s = times([sample.first_s for sample in samples])
        last_s = times([sample.last_s for sample in samples])
        answered = np.array([sample.outcome is Outcome.ANSWERED for sample in samples])
        waits = np.array([sample.outcome in _WAITED for sample in samples])
        tokens = np.array([sample.tokens for sample in samples], dtype=np.float64)
        ttft_s = first_s - due_s
        ttft_s = np.where(np.isnan(ttft_s) & waits, last_s - due_s, ttft_s)
        steps = np.where(tokens > 1, tokens - 1, _NAN)
        return cls(
            due_s=due_s,
            sent_s=sent_s,
            ttft_s=ttft_s,
            tpot_s=np.where(answered, (last_s - first_s) / steps, _NAN),
            e2e_s=np.where(answered | waits, last_s - due_s, _NAN),
            first_s=first_s,
            last_s=last_s,
            prompt_tokens=np.array([sample.prompt_tokens for sample in samples], dtype=np.float64),
            answered=answered,
            offloaded=np.array([sample.route == "offload" for sample in samples]),
        )


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant's part."""

    requests: int
    attainment: float
    ttft: Percentiles


@dataclass(frozen=True, slots=True)
class Summary:
    """One run, less its warm-up; rates per real second.

    `throughput_per_s` counts first tokens within the window of arrivals, `answers_per_s` whole
    answers there. `lag` is how late the sender was: that of the load itself, to be small. `stable`
    is False where TTFT grew, `growth` by how many seconds per second. `miscounted` is how many
    prompts the gateway counted otherwise than they were made.
    """

    requests: int
    window_s: tuple[float, float]
    offered_per_s: float
    throughput_per_s: float
    answers_per_s: float
    goodput_per_s: float
    attainment: float
    outcomes: dict[str, int]
    routes: dict[str, int]
    errors: dict[str, int]
    ttft: Percentiles
    tpot: Percentiles
    itl: Percentiles
    e2e: Percentiles
    lag: Percentiles
    offload_fraction: float
    output_tokens_per_s: float
    miscounted: int
    stable: bool
    growth: float
    tenants: dict[str, Tenant] = field(default_factory=dict)


def summarise(
    samples: Sequence[Sample], *, slo: Slo, warmup_share: float, dilation: float
) -> Summary:
    """Return what the samples, in order of `due_s`, come to.

    `warmup_share` is of the time over which requests were due.

    Raises:
        StateError: no request is left.
    """
    if not samples:
        raise StateError("no request was measured; see the log of the run")
    columns = Columns.of(samples, dilation)
    first_s, last_s = float(columns.due_s[0]), float(columns.due_s[-1])
    begin_s = first_s + warmup_share * (last_s - first_s)
    kept = columns.due_s >= begin_s
    measured = [sample for sample, keep in zip(samples, kept.tolist(), strict=True) if keep]
    seconds = max(last_s - begin_s, 1e-9) if last_s > first_s else _whole_s(columns)
    end_s = begin_s + seconds
    good = _good(columns, slo)
    growth, stable = growth_of(columns.due_s[kept], columns.ttft_s[kept])
    return Summary(
        requests=len(measured),
        window_s=(begin_s, end_s),
        offered_per_s=len(measured) / seconds,
        throughput_per_s=_within(columns.first_s, begin_s, end_s) / seconds,
        answers_per_s=_within(columns.last_s[columns.answered], begin_s, end_s) / seconds,
        goodput_per_s=float((good & kept).sum() / seconds),
        attainment=float((good & kept).sum() / len(measured)),
        outcomes=dict(Counter(str(sample.outcome) for sample in measured)),
        routes=dict(Counter(sample.route or "none" for sample in measured)),
        errors=dict(Counter(_cause(sample) for sample in measured if _cause(sample))),
        ttft=percentiles(columns.ttft_s[kept]),
        tpot=percentiles(columns.tpot_s[kept]),
        itl=percentiles(_gaps(measured, dilation)),
        e2e=percentiles(columns.e2e_s[kept]),
        lag=percentiles((columns.sent_s - columns.due_s)[kept]),
        offload_fraction=float(columns.offloaded[kept].mean()),
        output_tokens_per_s=sum(sample.tokens for sample in measured) / seconds,
        miscounted=sum(_is_miscounted(sample) for sample in measured),
        stable=stable,
        growth=growth,
        tenants=_tenants(measured, columns, kept, good),
    )


def percentiles(values: Floats) -> Percentiles:
    """Return the distribution of the values that are not NaN."""
    known = values[~np.isnan(values)]
    if not len(known):
        return Percentiles(*[_NAN] * 5)
    return Percentiles(float(known.mean()), *np.quantile(known, (0.5, 0.9, 0.95, 0.99)).tolist())


def growth_of(due_s: Floats, ttft_s: Floats) -> tuple[float, bool]:
    """Return by how much TTFT grew per second, and whether that is no growth to speak of.

    It counts as growing when it gained more than its mean, and rose from third to third: the rule
    of `prfaas.sim.summary`.
    """
    known = ~np.isnan(ttft_s)
    at_s, delay_s = due_s[known], ttft_s[known]
    if len(at_s) < 3 or at_s[-1] <= at_s[0]:
        return 0.0, True
    centred_s = at_s - at_s.mean()
    spread = float((centred_s**2).sum())
    if not spread:
        return 0.0, True
    slope = float((centred_s * delay_s).sum()) / spread
    thirds = [float(part.mean()) for part in np.array_split(delay_s, 3)]
    gained = slope * float(at_s[-1] - at_s[0]) > float(delay_s.mean())
    return slope, not (slope > _GROWTH and gained and thirds[0] < thirds[1] < thirds[2])


def _good(columns: Columns, slo: Slo) -> NDArray[np.bool_]:
    """Return which requests met the SLO; an answer of one token has no TPOT to keep."""
    steady = np.isnan(columns.tpot_s) | (columns.tpot_s <= slo.tpot_s * (1 + _ROUNDING))
    return columns.answered & (columns.ttft_s <= slo.ttft_s) & steady


def _whole_s(columns: Columns) -> float:
    """Return the seconds of a run whose requests all came at once."""
    known = columns.last_s[~np.isnan(columns.last_s)]
    return max(float(known.max() - columns.due_s[0]), 1e-9) if len(known) else 1.0


def _within(at_s: Floats, begin_s: float, end_s: float) -> int:
    return int(((at_s >= begin_s) & (at_s <= end_s)).sum())


def _gaps(samples: Sequence[Sample], dilation: float) -> Floats:
    parts = [np.array(sample.gaps_s) for sample in samples if sample.gaps_s]
    return np.concatenate(parts) / dilation if parts else np.zeros(0)


def _cause(sample: Sample) -> str:
    if sample.outcome is Outcome.ANSWERED:
        return ""
    parts = (str(sample.outcome), str(sample.status or ""), sample.reason, sample.error)
    return " ".join(part for part in parts if part)[:160]


def _is_miscounted(sample: Sample) -> bool:
    return sample.told_prompt_tokens not in (-1, sample.prompt_tokens)


def _tenants(
    measured: Sequence[Sample],
    columns: Columns,
    kept: NDArray[np.bool_],
    good: NDArray[np.bool_],
) -> dict[str, Tenant]:
    names = np.array([sample.tenant for sample in measured])
    found = {}
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        found[name] = Tenant(
            requests=int(own.sum()),
            attainment=float(good[kept][own].mean()),
            ttft=percentiles(columns.ttft_s[kept][own]),
        )
    return found


__all__ = ["Columns", "Percentiles", "Slo", "Summary", "summarise"]
