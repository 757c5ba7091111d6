"""The paper's Table 6, measured on engine twins: three systems, each until it is full.

    .venv/bin/python tests/bench/table6/measure.py [--dilation 2] [--out build/table6] [SYSTEM ...]

Each system is deployed on this machine (root) and gets the paper's workload by `prfaasctl campaign
run` twice or more often: above what it takes, which tells its capacity, then at lower and lower
rates until one is sustained. Half an hour; `report.py` makes docs/table6.md of what it leaves.
"""

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRFAASCTL = str(Path(sys.executable).with_name("prfaasctl"))
CAMPAIGN = Path(__file__).parents[3] / "loadtest" / "campaigns" / "paper.toml"
PORT = 18_190


@dataclass(frozen=True)
class System:
    """One column of the table. `instances` are as deploy takes them, `full_rate` is too much."""

    name: str
    policy: str
    instances: str
    threshold: int
    full_rate: float


SYSTEMS = (
    System("prfaas", "threshold", "4,3,5", 19_400, 3.6),
    # The one prefill of the first region is never asked: no prompt is that long.
    System("homogeneous", "homogeneous", "1,9,3", 1_000_000, 2.4),
    # The one local prefill is never asked: every prompt is longer than 0 tokens.
    System("naive", "naive", "4,1,8", 0, 2.8),
)
_SHARES = (0.94, 0.88, 0.80)
"""Rates to try, of the capacity, until one is sustained."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("systems", nargs="*", default=[system.name for system in SYSTEMS])
    parser.add_argument("--dilation", type=float, default=2.0)
    parser.add_argument("--scale", type=float, default=1000.0)
    parser.add_argument("--requests", type=int, default=180)
    parser.add_argument("--tries", type=int, default=len(_SHARES))
    parser.add_argument("--out", type=Path, default=Path("build/table6"))
    parser.add_argument("--state-dir", type=Path, default=Path("/var/lib/prfaas"))
    options = parser.parse_args()
    for system in SYSTEMS:
        if system.name in options.systems:
            measure(system, options)


def measure(system: System, options: argparse.Namespace) -> None:
    """Deploy a system, find what it takes, and destroy it."""
    place = ["--name", "tablesix", "--state-dir", str(options.state_dir)]
    out = options.out / system.name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    campaign = out / "campaign.toml"
    text = CAMPAIGN.read_text().replace('policy = "threshold"', f'policy = "{system.policy}"')
    campaign.write_text(text)
    deploy = ["deploy", "--regions", "a,b", "--engine", "twin", "--port", str(PORT)]
    deploy += ["--instances", system.instances, "--threshold", str(system.threshold)]
    deploy += ["--dilation", str(options.dilation), "--scale", str(options.scale)]
    _run([*deploy, *place])
    try:
        full = _campaign(campaign, out / "full", system.full_rate, options, place)
        capacity = full["measured"]["throughput_per_s"]
        for share in _SHARES[: options.tries]:
            found = _campaign(campaign, out / f"at-{share}", capacity * share, options, place)
            if found["measured"]["stable"] and not found["measured"]["errors"]:
                break
    finally:
        _run(["destroy", *place])


def _campaign(
    campaign: Path, out: Path, rate: float, options: argparse.Namespace, place: list[str]
) -> dict[str, Any]:
    arguments = ["campaign", "run", str(campaign), "--out", str(out), "--rate", f"{rate:.4f}"]
    arguments += ["--requests", str(options.requests), "--json", *place]
    return dict(json.loads(_run(arguments)))


def _run(arguments: list[str]) -> str:
    sys.stderr.write(f"prfaasctl {' '.join(arguments)}\n")
    done = subprocess.run(
        [PRFAASCTL, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"table6: prfaasctl {arguments[0]} failed with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
