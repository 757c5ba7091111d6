"""The tables of docs/simulation-tables.md: TTFT with queueing and transfer, policy by policy.

What the paper does not give: its case with arrivals that are random and bursty, near Lambda_max.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

from prfaas.planning.paper import paper_case
from prfaas.sim.policies.contender import CONTENDERS, Contender
from prfaas_cli.simulation import Progress, Question, contenders_of, run
from prfaas_cli.simulation_lines import seconds
from prfaas_cli.simulation_options import ArrivalSpec

#: Per run, by load: nearer to Lambda_max queues take longer to show their mean.
REQUESTS = {0.8: 20_000, 0.95: 80_000}
#: Per run of a policy that the rate is too much for: more would only make a longer queue.
OVERLOADED_REQUESTS = 8_000
SEEDS = (1, 2, 3)
LOADS = tuple(REQUESTS)
ARRIVALS = {
    "poisson": "Poisson",
    "gamma:3": "bursty: gamma gaps of coefficient of variation 3",
    "onoff:10,40,2": "bursty: twice the mean rate for 10 s, three quarters of it for 40 s"
    " (means of exponential phases)",
}
#: Whose Lambda_max the common rate of the second tables is a share of.
_LEADER = "prfaas"

OWN, COMMON = "own", "common"


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of several seeds: its mean, and half the distance of the extremes."""

    mean: float
    half_range: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of the values."""
        return cls(fmean(values), (max(values) - min(values)) / 2)

    def __str__(self) -> str:
        return f"{seconds(self.mean)} ±{seconds(self.half_range)}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy under one process of arrivals at one load; seconds and requests per second.

    `rate` says of whose Lambda_max the load is a share: each one's own, or the common one.
    """

    policy: str
    arrivals: str
    load: float
    rate: str
    rate_per_s: float
    mean: Spread
    p90: Spread
    p99: Spread
    attainment: float
    growth: float
    unstable_seeds: int

    @property
    def stable(self) -> bool:
        """Whether queues stayed bounded under most seeds."""
        return self.unstable_seeds * 2 < len(SEEDS)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        from prfaas_cli.simulation_document import plain

        document: dict[str, Any] = plain(self)
        return document

    def shown(self) -> tuple[str, ...]:
        """Return the columns of a table."""
        rate = f"{self.rate_per_s:.2f}"
        if not self.stable:
            return rate, f"unstable, +{self.growth:.2f} s/s", "", "", f"{self.attainment:.0%}"
        return rate, str(self.mean), str(self.p90), str(self.p99), f"{self.attainment:.0%}"


@cache
def contenders() -> dict[str, Contender]:
    """Return all contenders of the paper's case."""
    question = Question(paper_case())
    return {made.name: made for made in contenders_of(question, note=lambda _: None)}


def cell(
    policy: str, arrivals: str, load: float, rate: str, progress: Progress | None = None
) -> Cell:
    """Simulate one cell under all seeds."""
    contender = contenders()[policy]
    leader = contender if rate == OWN else contenders()[_LEADER]
    rate_per_s = load * leader.lambda_max
    overloaded = rate_per_s > 1.02 * contender.lambda_max
    question = Question(
        paper_case(),
        arrivals=ArrivalSpec.parse(arrivals),
        rate_per_s=rate_per_s,
        requests=OVERLOADED_REQUESTS if overloaded else REQUESTS[load],
    )
    found = [
        run(replace(question, seed=seed), contender, _telling(progress, arrivals, load)).summary
        for seed in SEEDS
    ]
    return Cell(
        policy=policy,
        arrivals=arrivals,
        load=load,
        rate=rate,
        rate_per_s=rate_per_s,
        mean=Spread.of([each.ttft.mean for each in found]),
        p90=Spread.of([each.ttft.p90 for each in found]),
        p99=Spread.of([each.ttft.p99 for each in found]),
        attainment=fmean(each.attainment for each in found),
        growth=fmean(each.growth for each in found),
        unstable_seeds=sum(not each.stable for each in found),
    )


def study(progress: Progress) -> list[Cell]:
    """Simulate all cells; where the common rate is a policy's own they are the same."""
    cells: list[Cell] = []
    for rate, arrivals, policy, load in product((OWN, COMMON), ARRIVALS, contenders(), LOADS):
        if rate == COMMON and contenders()[policy].lambda_max == contenders()[_LEADER].lambda_max:
            same = _find(cells, policy, arrivals, load, OWN)
            cells.append(replace(same, rate=COMMON))
        else:
            cells.append(cell(policy, arrivals, load, rate, progress))
    return cells


def markdown(cells: Sequence[Cell]) -> Iterator[str]:
    """Give the lines of docs/simulation-tables.md."""
    yield "# TTFT under load, policy by policy"
    yield ""
    yield "Made by `make sim-tables`; [simulation.md](simulation.md) says how to read it."
    yield ""
    yield from _contender_lines()
    for rate, title in (
        (OWN, "Each at the same share of its own Lambda_max"),
        (COMMON, "All at the same rate: that share of PrfaaS's Lambda_max"),
    ):
        for arrivals, words in ARRIVALS.items():
            yield ""
            yield f"## {title}; {words.partition(':')[0]} arrivals (`{arrivals}`)"
            yield ""
            yield f"{words[0].upper()}{words[1:]}."
            yield ""
            yield from _table(cells, arrivals, rate)


def row(cells: Sequence[Cell], policy: str, arrivals: str, rate: str) -> str:
    """Return one policy's line of a table."""
    columns = [
        part for load in LOADS for part in _find(cells, policy, arrivals, load, rate).shown()
    ]
    return f"| {' | '.join([policy, *columns])} |"


def _table(cells: Sequence[Cell], arrivals: str, rate: str) -> Iterator[str]:
    heads = [
        f"{name} at {load:.0%}" if name == "req/s" else name
        for load in LOADS
        for name in ("req/s", "TTFT mean", "P90", "P99", "SLO met")
    ]
    yield f"| policy | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for policy in contenders():
        yield row(cells, policy, arrivals, rate)


def _contender_lines() -> Iterator[str]:
    slo = Question(paper_case()).slo
    counts = ", ".join(f"{count:,} at {load:.0%}" for load, count in REQUESTS.items())
    yield (
        f"The paper's case, seeds {', '.join(map(str, SEEDS))}; requests per run: {counts},"
        f" {OVERLOADED_REQUESTS:,} where the rate is above Lambda_max. The first tenth of the time"
        " is not measured. Seconds; ± is half the distance between the seeds' extremes."
        f" SLO: TTFT {slo.ttft_s:g} s and TPOT {slo.tpot_s * 1e3:g} ms. Unstable: the delay grew by"
        " so many seconds per second; its percentiles would only tell how long the run was."
    )
    yield ""
    yield "| policy | models | source | plan | Lambda_max, req/s |"
    yield "|---|---|---|---|---|"
    for name in CONTENDERS:
        made = contenders()[name]
        yield f"| {name} | {made.models} | {made.source} | {made.note} | {made.lambda_max:.2f} |"


def _find(cells: Sequence[Cell], policy: str, arrivals: str, load: float, rate: str) -> Cell:
    wanted = (policy, arrivals, load, rate)
    return next(c for c in cells if (c.policy, c.arrivals, c.load, c.rate) == wanted)


def _telling(progress: Progress | None, arrivals: str, load: float) -> Progress:
    """Return what tells progress, if anyone listens, with what is under way."""

    def tell(name: str, share: float) -> None:
        if progress is not None:
            progress(f"{name}, {arrivals} at {load:.0%}", share)

    return tell
