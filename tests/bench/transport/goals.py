"""What the transport is to reach, and whether the rows say that it does. Pure.

Judged by medians.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comparison import BEST_PEER, FIRST_WARM, IPERF3, LANES, PLAIN_COPY

Table = Mapping[tuple[str, str, str], Any]

RTT_S, LIVENESS_S, SLACK_S = 0.020, 2.0, 0.2


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


KERNEL = ("veth", "10 Gbit/s")
CLEAN = ("1 Gbit/s 20 ms", "1 Gbit/s 100 ms")
LOSSY = tuple(
    f"{rate}30 ms, {loss} % loss" for rate in ("", "200 Mbit/s ") for loss in ("0.1", "1")
)
AS_INSTALLED = tuple(f"{case}, as installed" for case in LOSSY)
LINKS = (*KERNEL, *CLEAN, *LOSSY)


def _goodput(text: str, other: str, bound: float, cases: Iterable[str]) -> list[Goal]:
    metric = f"goodput / {other}"
    return [Goal(f"goodput, of {text}", case, metric, bound, is_least=True) for case in cases]


def _cpu(text: str, side: str, other: str, bound: float, cases: Iterable[str]) -> list[Goal]:
    metric = f"{side}_cpu_per_gb / {other}"
    return [Goal(f"CPU per GB, {side}, of {text}", case, metric, bound) for case in cases]


GOALS: Sequence[Goal] = (
    *_goodput("iperf3 with 8 streams", IPERF3, 0.95, (*CLEAN, *LOSSY, "10 Gbit/s")),
    *_goodput("a plain copy to distinct memory", PLAIN_COPY, 0.8, KERNEL),
    *_cpu("a plain copy", "send", PLAIN_COPY, 1 / 0.8, KERNEL),
    *_cpu("a plain copy", "receive", PLAIN_COPY, 1 / 0.8, KERNEL),
    *_goodput("the best peer", BEST_PEER, 1.0, LINKS),
    *_goodput("the best peer at its default settings", BEST_PEER, 2.0, AS_INSTALLED),
    *_goodput("Mooncake", "Mooncake", 2.5, (*CLEAN, *LOSSY, *AS_INSTALLED)),
    *_cpu("NIXL", "send", "NIXL", 0.2, (*CLEAN, *LOSSY)),
    Goal(
        "first 64 KB of a peer whose lanes are warm (two round trips and 5 ms)",
        "first room",
        FIRST_WARM,
        2000 * RTT_S + 5,
        "ms",
    ),
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
        1.1,
    ),
    Goal("submit() holds its caller, p99", "submit", "submit(), p99", 1.0, "ms"),
    Goal("link back after 3 s: bytes flow again", "link cut 3 s", "flowing again after", 0.5, "s"),
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
        "receiver vanished: its room fails (liveness_s and 0.2 s)",
        "peer vanished",
        "room failed on the sender after",
        LIVENESS_S + SLACK_S,
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
