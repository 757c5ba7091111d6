"""Rows of results: `{case, contender, metric, value, unit}`."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from comparison import Row, row, spread_rows


class Rows:
    """Collects rows, prints them as they come, and keeps them in a file.

    A run of some cases only (`keep`) takes over the rows that the file has of the others.
    """

    def __init__(self, path: Path, *, keep: bool = False, nice: int = 0) -> None:
        self.path, self.nice = path, nice
        self.num_failed = 0
        self.began_s = time.monotonic()
        self.all: list[Row] = []
        if keep and path.exists():
            self.all = json.loads(path.read_text())["rows"]

    def begin(self, case: str) -> None:
        """Drop what is known of a case that is about to be measured."""
        self.all = [known for known in self.all if known["case"] != case]

    def add(self, case: str, contender: str, metric: str, value: Any, unit: str) -> None:
        self.extend([row(case, contender, metric, value, unit)])

    def extend(self, rows: Iterable[Row]) -> None:
        known = list(rows)
        self.all += known
        spread = {(made["contender"], made["metric"]): made["value"] for made in known}
        for made in known:
            metric, value = made["metric"], made["value"]
            if metric.endswith(("_min", "_max")):
                continue
            ends = [spread.get((made["contender"], f"{metric}_{end}")) for end in ("min", "max")]
            if None not in ends:
                value = f"{value} ({ends[0]} to {ends[1]})"
            names = f"{made['case']:>24} {made['contender']:>18} {metric:<36}"
            print(f"{names} {value} {made['unit']}", flush=True)

    def failed(self, case: str, contender: str, error: Exception) -> None:
        """Say in a row that something could not be measured; the run has then failed, too."""
        self.add(case, contender, "failed", f"{error!r:.200}", "")
        self.num_failed += 1

    def spread(
        self, case: str, contender: str, metric: str, values: Iterable[float], unit: str
    ) -> float:
        """Add the median of repeats, with their minimum and maximum; return the median."""
        made = spread_rows(case, contender, metric, values, unit)
        self.extend(made)
        return float(made[0]["value"])

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        minutes = round((time.monotonic() - self.began_s) / 60, 1)
        facts = {**machine_facts(), "minutes": minutes, "nice": self.nice}
        self.path.write_text(json.dumps({"machine": facts, "rows": self.all}, indent=1) + "\n")


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


def machine_facts() -> dict[str, Any]:
    """Return what the figures depend on."""
    versions = subprocess.run(["iperf3", "--version"], capture_output=True, text=True, check=False)
    return {
        "command": "make bench-transport",
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "iperf3": versions.stdout.split("\n")[0],
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
