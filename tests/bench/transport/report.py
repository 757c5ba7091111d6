"""Make docs/benchmarks.md of the rows. Usage: report.py [ROWS.json] [PAGE.md]."""

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """# Benchmarks of the transport

Made by `make bench-report` from the rows of `{command}` (`build/bench/transport.json`); not edited
by hand.

{cores} cores shared with other work ({cpu}), Linux {kernel}, Python {python}, {iperf3}; {at},
{minutes} minutes, all contenders at nice {nice}, load average at the end {load}. On such a machine
only figures of one case compare, because its contenders ran in turns.

Both ends of every path are processes of this machine in network namespaces of their own: `veth` is
a plain veth pair, `10 Gbit/s` the same with `htb`, the others the project's own emulated link. All
contenders use eight streams and the same congestion control (bbr where packets are lost, else
cubic). The plain copy is eight threads that do nothing but `sendmsg` and `recvmsg_into` of
scattered 64 KB pages, 1 MB a call; iperf3 receives into one buffer that stays in the CPU's cache.
Lanes move rooms of 128 MB of scattered 64 KB pages, 32 layers of them. A figure is the median of
the repeats, with their smallest and largest.

## Goodput and CPU

| case | load | contender | goodput, Gbit/s | lanes / this | CPU s/GB sending | CPU s/GB receiving |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    source = Path(sys.argv[1] if len(sys.argv) > 1 else "build/bench/transport.json")
    page = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/benchmarks.md")
    found = json.loads(source.read_text())
    page.write_text(render(found["machine"], found["rows"]))


def render(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    table = {(row["case"], row["contender"], row["metric"]): row["value"] for row in rows}
    load = ", ".join(str(value) for value in machine["load_average"])
    text = HEAD.format(**{**machine, "load": load})
    compared = list(dict.fromkeys(row["case"] for row in rows if row["metric"] == "goodput"))
    for case in compared:
        text += "".join(_line(table, case, contender) for contender in _contenders(rows, case))
    text += "\n## Rooms, faults and the rest\n\n"
    text += "| case | contender | what | value |\n|---|---|---|---|\n"
    for row in rows:
        if row["case"] not in compared and not row["metric"].endswith(("_min", "_max")):
            unit = "" if row["unit"] in ("1", "ratio") else f" {row['unit']}"
            value = f"{row['value']}{unit}{_range(table, row)}"
            text += f"| {row['case']} | {row['contender']} | {row['metric']} | {value} |\n"
    return text


def _contenders(rows: list[dict[str, Any]], case: str) -> list[str]:
    there = {row["contender"] for row in rows if row["case"] == case and row["metric"] == "goodput"}
    return sorted(there, key=lambda name: (not name.startswith("lanes"), name))


def _line(table: dict[tuple[str, str, str], Any], case: str, contender: str) -> str:
    def spread(metric: str) -> str:
        low, high = (table[case, contender, f"{metric}_{end}"] for end in ("min", "max"))
        return f"{table[case, contender, metric]} ({low} to {high})"

    ratio = table.get((case, "lanes", f"goodput / {contender}"), "")
    cells = [case, table[case, "machine", "load_average"], contender, spread("goodput"), ratio]
    cells += [spread("send_cpu_per_gb"), spread("receive_cpu_per_gb")]
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def _range(table: dict[tuple[str, str, str], Any], row: dict[str, Any]) -> str:
    key = row["case"], row["contender"]
    low, high = (table.get((*key, f"{row['metric']}_{end}")) for end in ("min", "max"))
    return "" if low is None else f" ({low} to {high})"


if __name__ == "__main__":
    main()
