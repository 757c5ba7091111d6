"""From readings of contenders to rows: medians, spreads and ratios. Pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LANES = "lanes"
IPERF3 = "iperf3 -P 8"
PLAIN_COPY = "plain copy"
COPY_WITH_DIGESTS = "plain copy, XXH3"
NO_DIGESTS = "lanes, no digests"
BEST_PEER = "best peer"
OWN_REFERENCES = (PLAIN_COPY, COPY_WITH_DIGESTS, NO_DIGESTS)
FIRST_WARM = "first 64 KB, lanes warm"
FIRST = "first 64 KB"

Row = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """One run after its warm-up: bytes that arrived, CPU seconds of either side.

    cold_s: until the first 64 KB had arrived at a peer that was never spoken to before.
    """

    num_bytes: int
    seconds: float
    send_cpu_s: float
    receive_cpu_s: float
    cold_s: float | None = None

    @property
    def gbits_per_s(self) -> float:
        return self.num_bytes * 8 / self.seconds / 1e9

    def per_gb(self, cpu_s: float) -> float:
        """Return CPU seconds per GB; without a byte there is no such figure (infinity)."""
        return cpu_s / (self.num_bytes / 1e9) if self.num_bytes else float("inf")


#: Figures of a run: how to get it, and its unit.
FIGURES: Mapping[str, tuple[Callable[[Reading], float | None], str]] = {
    "goodput": (lambda run: run.gbits_per_s, "Gbit/s"),
    "send_cpu_per_gb": (lambda run: run.per_gb(run.send_cpu_s), "s/GB"),
    "receive_cpu_per_gb": (lambda run: run.per_gb(run.receive_cpu_s), "s/GB"),
    FIRST: (lambda run: None if run.cold_s is None else 1000 * run.cold_s, "ms"),
}


def row(case: str, contender: str, metric: str, value: Any, unit: str) -> Row:
    """Return a row; floats keep four digits."""
    if isinstance(value, float):
        value = float(f"{value:.4g}")
    return {"case": case, "contender": contender, "metric": metric, "value": value, "unit": unit}


def spread_rows(
    case: str, contender: str, metric: str, values: Iterable[float], unit: str
) -> list[Row]:
    """Return the median of repeats, their minimum and their maximum.

    >>> [(r["metric"], r["value"]) for r in spread_rows("veth", "lanes", "x", [3.0, 1.0, 2.0], "s")]
    [('x', 2.0), ('x_min', 1.0), ('x_max', 3.0)]
    """
    known = sorted(values)
    figures = {"": statistics.median(known), "_min": known[0], "_max": known[-1]}
    return [row(case, contender, metric + end, value, unit) for end, value in figures.items()]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    known = sorted(values)
    return known[max(0, -int(-share * len(known) // 1) - 1)]


def comparison_rows(
    case: str, readings: Mapping[str, Sequence[Reading]], peers: Iterable[str]
) -> list[Row]:
    """Return the figures of all contenders, everyone's goodput as a share of iperf3's, and ours as
    shares of the other contenders' and of the best peer's.

    The contenders ran in turns, so that a ratio is that of one turn; of the turns it is the median.
    A ratio above one is good for goodput, below one for everything else.
    """
    known = {name: runs for name, runs in readings.items() if runs}
    made = [made for name, runs in known.items() for made in _own_rows(case, name, runs)]
    peers = [peer for peer in peers if peer in known]
    for name in known:
        others = [IPERF3, *(OWN_REFERENCES if name.startswith(LANES) else ())]
        for other in [*others, *(peers if name == LANES else ())]:
            if other in known and other != name:
                made += _ratio_rows(case, name, other, "goodput", known)
    if LANES in known:
        for other in [PLAIN_COPY, COPY_WITH_DIGESTS, *peers]:
            if other in known:
                for figure in ("send_cpu_per_gb", "receive_cpu_per_gb"):
                    made += _ratio_rows(case, LANES, other, figure, known)
        for figure in FIGURES:
            made += _best_peer_rows(case, figure, known, peers)
    return made


def _own_rows(case: str, name: str, runs: Sequence[Reading]) -> list[Row]:
    made = []
    for figure, (value_of, unit) in FIGURES.items():
        values = [value for run in runs if (value := value_of(run)) is not None]
        if values:
            made += spread_rows(case, name, figure, values, unit)
    return made


def _best_peer_rows(
    case: str, figure: str, known: Mapping[str, Sequence[Reading]], peers: Sequence[str]
) -> list[Row]:
    """Return our share of the best peer's figure: of CPU per GB, that of the fastest peer."""
    unit = FIGURES[figure][1]
    theirs = [peer for peer in peers if _median(known[peer], figure) is not None]
    if not theirs or _median(known[LANES], figure) is None:
        return []
    best = max(theirs, key=lambda peer: _median(known[peer], "goodput") or 0.0)
    if figure == FIRST:
        best = min(theirs, key=lambda peer: _median(known[peer], FIRST) or 0.0)
    value = _median(known[best], figure)
    return [
        row(case, best, f"{BEST_PEER} in {figure}", value, unit),
        *_ratio_rows(case, LANES, best, figure, known, f"{figure} / {BEST_PEER}"),
    ]


def _median(runs: Sequence[Reading], figure: str) -> float | None:
    values = [value for run in runs if (value := FIGURES[figure][0](run)) is not None]
    return statistics.median(values) if values else None


def _ratio_rows(
    case: str,
    name: str,
    other: str,
    figure: str,
    known: Mapping[str, Sequence[Reading]],
    title: str = "",
) -> list[Row]:
    value_of = FIGURES[figure][0]
    turns = zip(known[name], known[other], strict=False)  # one that failed has fewer
    ratios = [_share(value_of(ours), value_of(theirs)) for ours, theirs in turns]
    return spread_rows(case, name, title or f"{figure} / {other}", ratios, "ratio")


def _share(ours: float | None, theirs: float | None) -> float:
    assert ours is not None
    return ours / theirs if theirs else float("inf")
