"""All contenders on one path, in turns."""

from collections.abc import Mapping
from functools import partial

from comparison import IPERF3, LANES, Reading, comparison_rows
from contenders import Plan, Run, iperf3, lanes, other_library
from paths import NetworkPath
from peers import PEERS
from rows import Rows

EVERYWHERE: Mapping[str, Run] = {
    IPERF3: iperf3,
    LANES: lanes,
    **{name: partial(other_library, peer=peer) for name, peer in PEERS.items()},
}


def compare(
    rows: Rows,
    case: str,
    path: NetworkPath,
    plan: Plan,
    repeats: int,
    contenders: Mapping[str, Run] = EVERYWHERE,
) -> None:
    """Run the contenders in turns; add their figures and ratios.

    A contender that fails is left out of further turns, and a row says why.
    """
    path.use_congestion_control(plan.congestion_control)
    left = dict(contenders)
    readings: dict[str, list[Reading]] = {}
    for _ in range(repeats):
        for name, run in list(left.items()):
            try:
                readings.setdefault(name, []).append(run(path, plan))
            except Exception as error:
                # Whatever goes wrong with one contender must not cost the figures of the others.
                rows.failed(case, name, error)
                del left[name]
    rows.extend(comparison_rows(case, readings, PEERS))
