"""From readings of contenders to rows: medians, spreads and ratios. Pure."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LANES = "lanes"
IPERF3 = "iperf3 -P 8"
BEST_PEER = "best peer"

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


def contender_rows(case: str, contender: str, readings: Sequence[Reading]) -> list[Row]:
    """Return what the runs of a contender say."""
    figures = {
        "goodput": ([r.gbits_per_s for r in readings], "Gbit/s"),
        "send_cpu_per_gb": ([r.per_gb(r.send_cpu_s) for r in readings], "s/GB"),
        "receive_cpu_per_gb": ([r.per_gb(r.receive_cpu_s) for r in readings], "s/GB"),
        "first 64 KB": ([1000 * r.cold_s for r in readings if r.cold_s is not None], "ms"),
    }
    return [
        made
        for metric, (values, unit) in figures.items()
        if values
        for made in spread_rows(case, contender, metric, values, unit)
    ]


def ratio_rows(case: str, rows: Sequence[Row], peers: Sequence[str]) -> list[Row]:
    """Return every contender's goodput over iperf3's, and ours against the best peer's figures.

    Of goodput the highest is the best, of everything else the lowest; each metric may have another
    best peer. A ratio is ours over theirs.
    """
    made = []
    goodput = _by_contender(rows, "goodput")
    for contender in goodput.keys() - {IPERF3}:
        if goodput.get(IPERF3):
            ratio = goodput[contender] / goodput[IPERF3]
            made.append(row(case, contender, f"goodput / {IPERF3}", ratio, "ratio"))
    for metric in ("goodput", "send_cpu_per_gb", "receive_cpu_per_gb", "first 64 KB"):
        known = _by_contender(rows, metric)
        theirs = [known[name] for name in peers if name in known]
        if LANES in known and theirs:
            best = max(theirs) if metric == "goodput" else min(theirs)
            if best:
                ratio = known[LANES] / best
                made.append(row(case, LANES, f"{metric} / {BEST_PEER}", ratio, "ratio"))
    return sorted(made, key=lambda r: (r["contender"], r["metric"]))


def _by_contender(rows: Sequence[Row], metric: str) -> Mapping[str, float]:
    return {r["contender"]: r["value"] for r in rows if r["metric"] == metric}
