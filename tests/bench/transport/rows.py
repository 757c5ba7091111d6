"""Rows of results: `{case, contender, metric, value, unit}`."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Rows:
    """Collects rows and prints them as they come."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def add(self, case: str, contender: str, metric: str, value: Any, unit: str) -> None:
        if isinstance(value, float):
            value = float(f"{value:.4g}")
        row = {"case": case, "contender": contender, "metric": metric, "value": value, "unit": unit}
        self.all.append(row)
        print(f"{case:>16} {contender:>16} {metric:<34} {value} {unit}", flush=True)

    def spread(
        self, case: str, contender: str, metric: str, values: Iterable[float], unit: str
    ) -> float:
        """Add the median of repeats, with their minimum and maximum; return the median."""
        known = sorted(values)
        middle = statistics.median(known)
        self.add(case, contender, metric, middle, unit)
        self.add(case, contender, f"{metric}_min", known[0], unit)
        self.add(case, contender, f"{metric}_max", known[-1], unit)
        return middle

    def save(self, path: Path, began_s: float, nice: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        minutes = round((time.monotonic() - began_s) / 60, 1)
        facts = {**machine_facts(), "minutes": minutes, "nice": nice}
        path.write_text(json.dumps({"machine": facts, "rows": self.all}, indent=1) + "\n")


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
