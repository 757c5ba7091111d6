"""What a simulation comes to: latencies, goodput, and how full the stages were.

Nothing is left out to look better: a request that is still open counts with what it has waited so
far, and neither it nor a refused one meets the SLO.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prfaas.errors import ConfigError
from prfaas.reasons import Route
from prfaas.sim.intervals import open_seconds, quantiles_in_bins
from prfaas.sim.record import Columns, Outcome
from prfaas.sim.scenario import Deployment
from prfaas.sim.timeline import STAGES, Timeline, timeline_of
from prfaas.sim.usage import ClusterUse, LinkLog, LinkUse, StageUse, Usage

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Bins of the time series.
BINS = 120
#: TTFT at these shares of the requests: the points of its distribution function.
CURVE = np.concatenate([np.linspace(0.0, 0.99, 100), [0.995, 0.999, 1.0]])
#: Clocks are floats: a TPOT may exceed its limit by so much, relative.
_ROUNDING = 1e-6
#: A queue grows when its delay does by this much per second, and by more than its mean in all.
_GROWTH = 0.005


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to count as good: both limits, seconds."""

    ttft_s: float
    tpot_s: float

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"slo: {name} = {value}: allowed: a positive number")


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A latency's distribution, seconds; NaN where no request has one."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Counts:
    """How many requests, of those measured. `retries` is attempts beyond each one's first."""

    requests: int
    answered: int
    refused: int
    open: int
    offloaded: int
    fallbacks: int
    retries: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of the mean TTFT, seconds, of requests whose first attempt gave the first token.

    `transfer_s` is what of it prefill did not hide, `decode_s` the wait for a place in a decode
    batch and the first step.
    """

    queueing_s: float
    prefill_s: float
    transfer_s: float
    decode_s: float


@dataclass(frozen=True, slots=True)
class Series:
    """The run over time; arrays of shape `(BINS,)`, `requests[stage]` being a mean number in it."""

    edges_s: Floats
    prfaas_prefill: Floats
    pd_prefill: Floats
    pd_decode: Floats
    link: Floats
    ttft_p50_s: Floats
    ttft_p90_s: Floats
    requests: dict[str, Floats]


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. Rates are requests per second, all figures of requests after the warm-up.

    `attainment` is the share that met the SLO, `ttft_curve_s` the TTFT at the shares of `CURVE`.
    `clusters` are the PrfaaS clusters one by one. Requests came up to `span_s`, the run ended at
    `end_s`. `stable` is False where queues grew; `growth` is the seconds of delay added per second.
    """

    offered_per_s: float
    throughput_per_s: float
    goodput_per_s: float
    attainment: float
    offload_fraction: float
    counts: Counts
    ttft: Percentiles
    tpot: Percentiles
    e2e: Percentiles
    ttft_curve_s: Floats
    breakdown: Breakdown
    link: LinkUse
    utilisation: StageUse
    clusters: tuple[ClusterUse, ...]
    span_s: float
    end_s: float
    stable: bool
    growth: float
    series: Series


def summarise(
    columns: Columns,
    deployment: Deployment,
    *,
    slo: Slo,
    links: LinkLog,
    warmup_share: float = 0.1,
    until_s: float = math.inf,
) -> Summary:
    """Return what a run comes to, less its warm-up: a share of the time over which requests came.

    `links` is what their links sent, `until_s` where the run was stopped, if it was.

    Raises:
        ConfigError: warmup_share is not from 0 to below 1.
    """
    if not 0 <= warmup_share < 1:
        raise ConfigError(f"warmup_share = {warmup_share}: allowed: 0 to below 1")
    timeline = timeline_of(columns, until_s)
    window = _Window.of(columns, timeline, warmup_share)
    ttft_s = _so_far(columns, columns.ttft_s, timeline)
    e2e_s = _so_far(columns, columns.e2e_s, timeline)
    arrived = window.arrived
    tried = arrived & (columns.outcome != Outcome.REFUSED)
    tpot_s = columns.tpot_s
    good = columns.answered & (ttft_s <= slo.ttft_s) & (tpot_s <= slo.tpot_s * (1 + _ROUNDING))
    growth, stable = _growth(columns, timeline, tried, ttft_s)
    usage = Usage(columns, deployment, timeline, links)
    series = _series(columns, usage, ttft_s)
    return Summary(
        offered_per_s=float(arrived.sum() / window.seconds),
        throughput_per_s=window.count(columns.finish_s) / window.seconds,
        goodput_per_s=float((good & arrived).sum() / window.seconds),
        attainment=float((good & arrived).sum() / arrived.sum()),
        offload_fraction=float((columns.region > 0)[arrived].mean()),
        counts=_counts(columns, arrived),
        ttft=_percentiles(ttft_s[tried]),
        tpot=_percentiles(tpot_s[columns.answered & arrived]),
        e2e=_percentiles(e2e_s[tried]),
        ttft_curve_s=_curve(ttft_s[tried]),
        breakdown=_breakdown(columns, arrived),
        link=usage.link(window.edges_s, series.edges_s),
        utilisation=usage.stages(window.edges_s),
        clusters=usage.clusters(window.edges_s, series.edges_s, arrived),
        span_s=min(float(columns.arrival_s[-1]), timeline.horizon_s),
        end_s=timeline.horizon_s,
        stable=stable,
        growth=growth,
        series=series,
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """The time that is measured, and the requests that came in it."""

    begin_s: float
    end_s: float
    arrived: Mask

    @classmethod
    def of(cls, columns: Columns, timeline: Timeline, warmup_share: float) -> "_Window":
        first_s, last_s = float(columns.arrival_s[0]), float(columns.arrival_s[-1])
        last_s = min(last_s, timeline.horizon_s)
        begin_s = first_s + warmup_share * (last_s - first_s)
        arrived = (columns.arrival_s >= begin_s) & (columns.arrival_s <= timeline.horizon_s)
        # Where all come at once there is no such time; then it is the whole run.
        return cls(begin_s, last_s if last_s > begin_s else timeline.horizon_s, arrived)

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    @property
    def edges_s(self) -> Floats:
        return np.array([self.begin_s, self.end_s])

    def count(self, at_s: Floats) -> int:
        return int(((at_s >= self.begin_s) & (at_s <= self.end_s)).sum())


def _so_far(columns: Columns, seconds: Floats, timeline: Timeline) -> Floats:
    """Return the latency, or what of it has passed at the end of the run."""
    waited_s = np.maximum(timeline.horizon_s - columns.arrival_s, 0.0)
    return np.where(np.isnan(seconds), waited_s, np.minimum(seconds, waited_s))


def _percentiles(values: Floats) -> Percentiles:
    if not len(values):
        return Percentiles(*[math.nan] * 5)
    return Percentiles(float(values.mean()), *np.quantile(values, (0.5, 0.9, 0.95, 0.99)).tolist())


def _curve(values: Floats) -> Floats:
    return np.asarray(np.quantile(values, CURVE) if len(values) else np.full(len(CURVE), np.nan))


def _counts(columns: Columns, arrived: Mask) -> Counts:
    outcome = columns.outcome[arrived]
    return Counts(
        requests=len(outcome),
        answered=int((outcome == Outcome.ANSWERED).sum()),
        refused=int((outcome == Outcome.REFUSED).sum()),
        open=int((outcome == Outcome.OPEN).sum()),
        offloaded=int((columns.region[arrived] > 0).sum()),
        fallbacks=int(columns.took(Route.FALLBACK)[arrived].sum()),
        retries=int(np.maximum(columns.attempts[arrived] - 1, 0).sum()),
    )


def _breakdown(columns: Columns, arrived: Mask) -> Breakdown:
    plain = arrived & (columns.attempts == 1) & ~np.isnan(columns.first_token_s)
    points = (
        columns.arrival_s,
        columns.prefill_start_s,
        columns.prefill_end_s,
        columns.kv_arrival_s,
        columns.first_token_s,
    )
    if not plain.any():
        return Breakdown(*[math.nan] * 4)
    return Breakdown(*np.diff([float(point[plain].mean()) for point in points]).tolist())


def _growth(
    columns: Columns, timeline: Timeline, tried: Mask, ttft_s: Floats
) -> tuple[float, bool]:
    """Return by how much the delay grew per second, and whether that is no growth to speak of.

    The delay is TTFT without the prefill itself. Bursts bend a line that is level, so that a queue
    counts as growing only when the delay gained more than its mean and rose from third to third.
    """
    begin_s, end_s = timeline.of("prefill")
    delay_s = (ttft_s - np.minimum(end_s - begin_s, ttft_s))[tried]
    at_s = columns.arrival_s[tried]
    if len(at_s) < 3 or at_s[-1] <= at_s[0]:
        return 0.0, True
    centred_s = at_s - at_s.mean()
    slope = float((centred_s * delay_s).sum() / (centred_s**2).sum())
    thirds = [float(part.mean()) for part in np.array_split(delay_s, 3)]
    gained = slope * float(at_s[-1] - at_s[0]) > float(delay_s.mean())
    grows = slope > _GROWTH and gained and thirds[0] < thirds[1] < thirds[2]
    return slope, not grows


def _series(columns: Columns, usage: Usage, ttft_s: Floats) -> Series:
    timeline = usage.timeline
    edges_s = np.linspace(0.0, timeline.horizon_s, BINS + 1)
    tried = columns.outcome != Outcome.REFUSED
    at_s, ttft_s = columns.arrival_s[tried], ttft_s[tried]
    widths_s = np.diff(edges_s)
    return Series(
        edges_s=edges_s,
        **usage.shares(edges_s),
        ttft_p50_s=quantiles_in_bins(at_s, ttft_s, edges_s, 0.5),
        ttft_p90_s=quantiles_in_bins(at_s, ttft_s, edges_s, 0.9),
        requests={stage: open_seconds(*timeline.of(stage), edges_s) / widths_s for stage in STAGES},
    )
