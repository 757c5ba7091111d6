"""What the transport is to reach, and whether the rows say that it does. Pure.

The bounds are this project's own. They are judged by medians.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comparison import BEST_PEER, FIGURES, IPERF3, LANES

Table = Mapping[tuple[str, str, str], Any]

RTT_S, LIVENESS_S = 0.020, 0.66


@dataclass(frozen=True)
class Goal:
    """A bound for one figure, from below (`is_least`) or from above."""

    text: str
    case: str
    metric: str
    bound: float
    unit: str = "ratio"
    is_least: bool = False
    contender: str = LANES

    def judge(self, table: Table) -> bool | None:
        """Return whether the figure reaches the goal; None if it is not known."""
        value = table.get((self.case, self.contender, self.metric))
        if not isinstance(value, int | float):
            return None
        return value >= self.bound if self.is_least else value <= self.bound


def _everywhere(links: Iterable[str]) -> list[Goal]:
    goals = []
    for case in links:
        ratio = f"goodput / {IPERF3}"
        goals.append(Goal("goodput, of iperf3 with 8 streams", case, ratio, 0.95, is_least=True))
        for figure in FIGURES:
            name = figure.replace("_cpu_per_gb", ": CPU per GB")
            is_least = figure == "goodput"
            metric = f"{figure} / {BEST_PEER}"
            goals.append(Goal(f"{name}, of the best peer", case, metric, 1.0, is_least=is_least))
    return goals


LINKS = (
    "veth",
    "10 Gbit/s",
    "1 Gbit/s 20 ms",
    "1 Gbit/s 100 ms",
    "30 ms, 0.1 % loss",
    "30 ms, 1 % loss",
)

GOALS: Sequence[Goal] = (
    *_everywhere(LINKS),
    Goal("first room, of the hundredth", "first room", "first / hundredth", 1.5),
    Goal(
        "small rooms beside large ones, p99, of alone",
        "64 rooms",
        "p99, among large / alone",
        2.0,
    ),
    Goal(
        "urgent room beside a background move, p99, of alone",
        "background",
        "p99, beside / alone",
        1.25,
    ),
    Goal("submit() holds its caller, p99", "submit", "submit(), p99", 1.0, "ms"),
    Goal("link back after 3 s: bytes flow again", "link cut 3 s", "flowing again after", 1.0, "s"),
    Goal(
        "link back after 3 s: resent although arrived",
        "link cut 3 s",
        "bytes resent that had arrived",
        0,
        "bytes",
    ),
    Goal(
        "receiver killed: its room fails (a round trip and 0.1 s)",
        "peer killed",
        "room failed on the sender after",
        RTT_S + 0.1,
        "s",
    ),
    Goal(
        "receiver vanished: its room fails (three silent periods and 0.2 s)",
        "peer vanished",
        "room failed on the sender after",
        3 * LIVENESS_S + 0.2,
        "s",
    ),
    *(
        Goal(
            f"TLS adds, {side}, of the cipher alone",
            "TLS",
            f"{side}: added / cipher alone",
            1.5,
            contender="TLS channel",
        )
        for side in ("send", "receive")
    ),
)
