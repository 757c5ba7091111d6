"""Make docs/benchmarks.md of the rows. Usage: report.py [ROWS.json] [PAGE.md]."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from comparison import BEST_PEER, FIGURES, IPERF3, LANES, Row
from goals import GOALS, Goal, Table

HEAD = """# Benchmarks of the transport

Made by `make bench-report` from the rows of `{command}` (`build/bench/transport.json`); not edited
by hand. Figures are medians of interleaved repeats, with their smallest and largest.

{cores} cores ({cpu}), Linux {kernel}, Python {python}, {iperf3}; {at}, {minutes} minutes, all
contenders at nice {nice}. On a machine that does other work, too, only figures of one case compare,
because its contenders ran in turns; ratios are those of one turn.
"""

METHOD = """
## How it is measured

Both ends of every path are processes of this machine in network namespaces of their own: `veth` is
a plain veth pair, `10 Gbit/s` the same with `htb`, the others the project's own emulated link
([decision 0003](decisions/0003-user-space-link.md)). All contenders of a case use the same
congestion control: bbr where packets are lost, unless the case says cubic, else cubic.

* **lanes**: rooms of the KV cache of a 1T hybrid model, 15 layers of 16 scattered 64 KB pages
  each, four rooms at a time over eight connections, every chunk with its digest.
* **Mooncake** (Transfer Engine 0.3.13, TCP) and **NIXL** (1.5.1, UCX over TCP): the same pages,
  as many rooms at a time, one write per page as SGLang asks for them. *Tuned* is a pool of eight
  connections and longer queues. What has arrived is counted in the receiver's memory.
* **iperf3** receives eight streams into one buffer that stays in the CPU's cache.
* **plain copy**: eight threads that do nothing but `sendmsg` and `recvmsg_into` of scattered 64 KB
  pages, 1 MB a call; the least that moving pages costs in Python.
* **First 64 KB**: from the first call, with nothing connected, until the page has arrived. For the
  others their peer's address was known already; a lane's time includes that the receiver opens the
  room at the sender.
* CPU seconds are those of the process, kernel included; the emulated link's own are not.
* The best peer of goodput and CPU is the fastest, that of the first 64 KB the quickest one.
"""


def main() -> None:
    source = Path(sys.argv[1] if len(sys.argv) > 1 else "build/bench/transport.json")
    page = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/benchmarks.md")
    found = json.loads(source.read_text())
    page.write_text(render(found["machine"], found["rows"], GOALS))


def render(machine: dict[str, Any], rows: Sequence[Row], goals: Iterable[Goal]) -> str:
    """Return the page."""
    table = {(row["case"], row["contender"], row["metric"]): row["value"] for row in rows}
    compared = [row["case"] for row in rows if _key(row)[1:] == (IPERF3, "goodput")]
    others = [row for row in rows if row["case"] not in compared]
    parts = (_goals(table, goals), METHOD, _comparison(table, rows, compared), _rest(table, others))
    return HEAD.format(**machine) + "".join(parts)


def _lines(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    cells = [head, ["---"] * len(head), *lines]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in cells)


def _goals(table: Table, goals: Iterable[Goal]) -> str:
    lines, num_met = [], 0
    for goal in goals:
        is_met = goal.judge(table)
        unit = "" if goal.unit == "ratio" else f" {goal.unit}"
        bound = f"{'at least' if goal.is_least else 'at most'} {goal.bound:.4g}{unit}"
        figure = _figure(table, (goal.case, goal.contender, goal.metric), unit)
        verdict = {None: "not measured", True: "met", False: "**not met**"}[is_met]
        lines.append((goal.text, goal.case, bound, figure, verdict))
        num_met += bool(is_met)
    text = f"\n## Goals\n\n{num_met} of {len(lines)} are met.\n\n"
    return text + _lines(("goal", "case", "bound", "measured", ""), lines)


def _comparison(table: Table, rows: Sequence[Row], cases: Iterable[str]) -> str:
    head = ["case", "contender", "goodput, Gbit/s", "of iperf3", "CPU s/GB sending"]
    head += ["CPU s/GB receiving", "first 64 KB, ms"]
    lines = []
    for case in cases:
        for name in _contenders(rows, case):
            of_iperf3 = _figure(table, (case, name, f"goodput / {IPERF3}"))
            goodput, *others = (_figure(table, (case, name, figure)) for figure in FIGURES)
            lines.append([case, name, goodput, of_iperf3, *others])
    best = [
        (row["case"], figure, row["contender"], _figure(table, (row["case"], LANES, figure)))
        for row in rows
        if row["case"] in cases and row["metric"].startswith(f"{BEST_PEER} in ")
        for figure in [row["metric"].removeprefix(f"{BEST_PEER} in ") + f" / {BEST_PEER}"]
    ]
    others = [
        (row["case"], row["contender"], row["metric"], _figure(table, _key(row), _unit(row)))
        for row in rows
        if row["case"] in cases and _is_of_ours(row)
    ]
    return (
        "\n## Goodput and CPU\n\n"
        + _lines(head, lines)
        + "\n## Lanes over the best peer\n\n"
        + _lines(("case", "what", "best peer", "lanes / best peer"), best)
        + "\n## Lanes with and without, failures and load\n\n"
        + _lines(("case", "contender", "what", "value"), others)
    )


def _is_of_ours(row: Row) -> bool:
    """Say whether a row of a comparison is in none of its other tables."""
    metric = row["metric"]
    is_ratio = metric.startswith("goodput / ") and not metric.endswith((IPERF3, BEST_PEER))
    return is_ratio or metric in ("failed", "load average")


def _rest(table: Table, rows: Iterable[Row]) -> str:
    lines = [
        (row["case"], row["contender"], row["metric"], _figure(table, _key(row), _unit(row)))
        for row in rows
        if not row["metric"].endswith(("_min", "_max"))
    ]
    return "\n## Rooms, faults and the rest\n\n" + _lines(
        ("case", "contender", "what", "value"), lines
    )


def _contenders(rows: Sequence[Row], case: str) -> list[str]:
    there = {row["contender"] for row in rows if row["case"] == case and row["metric"] == "goodput"}
    return sorted(there, key=lambda name: (not name.startswith(LANES), name))


def _key(row: Row) -> tuple[str, str, str]:
    return row["case"], row["contender"], row["metric"]


def _unit(row: Row) -> str:
    return "" if row["unit"] in ("1", "ratio", "") else f" {row['unit']}"


def _figure(table: Table, key: tuple[str, str, str], unit: str = "") -> str:
    """Return a figure with its spread, if it has one."""
    if key not in table:
        return ""
    case, contender, metric = key
    low, high = (table.get((case, contender, f"{metric}_{end}")) for end in ("min", "max"))
    spread = "" if low is None or low == high else f" ({low} to {high})"
    return f"{table[key]}{unit}{spread}"


if __name__ == "__main__":
    main()
