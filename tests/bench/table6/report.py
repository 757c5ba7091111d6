"""Makes docs/table6.md of what measure.py left in build/table6."""

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from prfaas.planning import Constraints, baselines, plan
from prfaas.planning.paper import paper_case
from prfaas.profile.catalog import find_profile
from prfaas.throughput import Expectation
from prfaas_loadtest.campaigns import read_samples

HERE = Path(__file__).parent
NAMES = {"prfaas": "PrfaaS-PD", "homogeneous": "homogeneous", "naive": "naive heterogeneous"}
PAPER = {"prfaas": 3.24, "homogeneous": 2.11, "naive": 2.45}
LINK_BITS_PER_S = 100e9
Run = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("build/table6"))
    parser.add_argument("--out", type=Path, default=Path("docs/table6.md"))
    options = parser.parse_args()
    full = {name: read(options.folder / name / "full") for name in NAMES}
    below = {name: best(options.folder / name) for name in NAMES}
    tail = (HERE / "tail.md").read_text().splitlines()
    options.out.write_text("\n".join([*head(full), *rows(full, below), "", *tail]) + "\n")


def read(folder: Path) -> Run:
    """Return a run's summary, and in `caches` the bits per second of what was offloaded: S_kv of
    the prompts whose first token came within the window."""
    run = dict(json.loads((folder / "summary.json").read_text()))
    begin_s, end_s = run["measured"]["window_s"]
    dilation = run["target"]["dilation"]
    kv_bytes = find_profile("paper-1t-h200").kv_bytes
    crossed = sum(
        kv_bytes.at(sample.prompt_tokens)
        for sample in read_samples(folder / "samples.jsonl")
        if sample.route == "offload" and begin_s <= sample.first_s / dilation <= end_s
    )
    run["caches"] = crossed * 8 / (end_s - begin_s)
    return run


def best(folder: Path) -> Run:
    """Return the run below capacity at the highest rate that was sustained, else the lowest."""
    found = sorted(folder.glob("at-*"), reverse=True)
    runs = [read(run) for run in found if (run / "summary.json").exists()]
    kept = [run for run in runs if run["measured"]["stable"] and not run["measured"]["errors"]]
    return (kept or runs[-1:])[0]


def head(full: dict[str, Run]) -> list[str]:
    """Return the page's begin."""
    target = full["prfaas"]["target"]
    scale, dilation = target["scale"], target["dilation"]
    count = full["prfaas"]["measured"]["requests"]
    text = (HERE / "head.md").read_text()
    return text.format(scale=scale, dilation=dilation, count=count).splitlines()


def rows(full: dict[str, Run], below: dict[str, Run]) -> list[str]:
    """Return the tables."""
    planned = plans()
    took = {name: measured(run) for name, run in full.items()}
    told = {name: simulated(run) for name, run in full.items()}
    base, told_base = took["homogeneous"], told["homogeneous"]
    found = ["", "## What each takes", ""]
    found += table(
        ["requests per second", *NAMES.values()],
        [
            ["paper", *(f"{PAPER[name]:.2f}" for name in NAMES)],
            ["plan, means of lengths (the paper's way)", *(f"{planned[n][0]:.2f}" for n in NAMES)],
            ["plan, exact means", *(f"{planned[n][1]:.2f}" for n in NAMES)],
            ["simulate, first tokens", *(f"{told[n]:.2f}" for n in NAMES)],
            ["**measured, first tokens**", *(f"**{took[n]:.2f}**" for n in NAMES)],
            ["offered meanwhile", *(f"{full[n]['measured']['offered_per_s']:.2f}" for n in NAMES)],
            ["measured against simulate", *(percent(took[n], told[n]) for n in NAMES)],
            ["measured against plan (exact)", *(percent(took[n], planned[n][1]) for n in NAMES)],
            ["ratio to homogeneous, paper", "1.54", "1.00", "1.16"],
            ["ratio, simulate", *(f"{told[n] / told_base:.2f}" for n in NAMES)],
            ["**ratio, measured**", *(f"**{took[n] / base:.2f}**" for n in NAMES)],
        ],
    )
    found += ["", "## Below that", ""]
    found += table(
        ["", *NAMES.values()],
        [
            ["offered (req/s)", *(f"{below[n]['measured']['offered_per_s']:.2f}" for n in NAMES)],
            ["TTFT mean (s), with queues and transfer", *cells(below, "ttft", "mean")],
            ["of simulate", *cells(below, "ttft", "mean", told=True)],
            ["TTFT P90 (s)", *cells(below, "ttft", "p90")],
            ["of simulate", *cells(below, "ttft", "p90", told=True)],
            ["TPOT mean (ms)", *cells(below, "tpot", "mean", 1e3)],
            ["TPOT P99 (ms)", *cells(below, "tpot", "p99", 1e3)],
            ["offloaded", *(f"{below[n]['measured']['offload_fraction']:.1%}" for n in NAMES)],
            ["egress of caches (Gbps)", *(caches(below[n]) for n in NAMES)],
            ["all bytes on the link (Gbps)", *(egress(below[n]) for n in NAMES)],
            ["egress of caches while full (Gbps)", *(caches(full[n]) for n in NAMES)],
            ["all bytes on the link while full", *(egress(full[n]) for n in NAMES)],
            ["failed", *(str(sum(below[n]["measured"]["errors"].values())) for n in NAMES)],
            ["sender late, P99 (ms)", *cells(below, "lag", "p99", 1e3)],
        ],
    )  # fmt: skip
    return found + goals(full, planned)


def goals(full: dict[str, Run], planned: dict[str, tuple[float, float]]) -> list[str]:
    """Return how the goals stand."""
    base = measured(full["homogeneous"])
    ratio, naive = (
        measured(full["prfaas"]) / base,
        measured(full["prfaas"]) / measured(full["naive"]),
    )
    part = full["prfaas"]["caches"] / LINK_BITS_PER_S
    off = max(abs(measured(full[n]) / simulated(full[n]) - 1) for n in NAMES)
    off_plan = max(abs(measured(full[n]) / planned[n][1] - 1) for n in NAMES)
    return [
        "",
        "## The goals",
        "",
        *table(
            ["goal", "measured", ""],
            [
                ["1.5 x homogeneous", f"{ratio:.2f}", kept(ratio >= 1.5)],
                ["1.28 x naive", f"{naive:.2f}", kept(naive >= 1.28)],
                ["caches 13 +- 2 % of the link", f"{part:.1%}", kept(0.11 <= part <= 0.15)],
                ["within 5 % of simulate", f"{off:.1%} at most", kept(off <= 0.05)],
                ["within 5 % of plan (exact)", f"{off_plan:.1%} at most", kept(off_plan <= 0.05)],
            ],
        ),
    ]  # fmt: skip


def plans() -> dict[str, tuple[float, float]]:
    """Return Lambda_max of the three systems, by both expectations."""
    case = paper_case()
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    for expectation in (Expectation.MEAN_LENGTH, Expectation.EXACT):
        fixed = replace(case.constraints, threshold_tokens=19_400, n_p=3, n_d=5)
        assert isinstance(fixed, Constraints)
        base = baselines(case.site, case.demand, expectation=expectation)
        assert base.naive is not None
        rates["prfaas"].append(
            plan(case.site, case.demand, fixed, expectation=expectation).lambda_max
        )
        rates["homogeneous"].append(base.homogeneous.lambda_max)
        rates["naive"].append(base.naive.lambda_max)
    return {name: (mean, exact) for name, (mean, exact) in rates.items()}


def measured(run: Run) -> float:
    return float(run["measured"]["throughput_per_s"])


def simulated(run: Run) -> float:
    return float(run["prediction"]["simulated"]["throughput_per_s"])


def cells(
    runs: dict[str, Run], what: str, figure: str, factor: float = 1.0, *, told: bool = False
) -> list[str]:
    found = []
    for name in NAMES:
        run = runs[name]
        source = run["prediction"]["simulated"] if told else run["measured"]
        value = source[what][figure]
        found.append("-" if value is None else f"{value * factor:.2f}")
    return found


def caches(run: Run) -> str:
    return f"{run['caches'] / 1e9:.2f}"


def egress(run: Run) -> str:
    return f"{run['egress']['mean_bits_per_s'] / 1e9:.2f}"


def percent(value: float, of: float) -> str:
    return f"{(value / of - 1) * 100:+.1f} %" if of else str(math.nan)


def kept(holds: bool) -> str:
    return "kept" if holds else "**missed**"


def table(heading: list[str], lines: list[list[str]]) -> list[str]:
    """Return a Markdown table."""
    rule = ["---"] * len(heading)
    return [f"| {' | '.join(cells)} |" for cells in (heading, rule, *lines)]


if __name__ == "__main__":
    main()
