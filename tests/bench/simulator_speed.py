"""How fast the simulator is, in processor time: run by `make bench-sim`. Reports, gates nothing.

Every figure is of a process of its own, made in turns, so that what else the machine does meets all
of them alike; of several the least counts.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace

from prfaas.planning import Case
from prfaas.planning.paper import paper_case
from prfaas_cli.output import table
from prfaas_cli.simulation import Question, contenders_of, run, workload_of

MILLION = 1_000_000
GPUS_PER_INSTANCE = 8
SCALES = (1, 10, 100)


def scaled(case: Case, scale: int) -> Case:
    """Return the case with so many times the instances, links and requests."""
    site = case.site.resized(
        [remote.instances * scale for remote in case.site.remotes], case.site.pd.instances * scale
    )
    remotes = tuple(
        replace(remote, egress_bytes_per_s=remote.egress_bytes_per_s * scale)
        for remote in site.remotes
    )
    count = (case.site.homogeneous_instances or case.site.instances) * scale
    return replace(case, site=replace(site, remotes=remotes, homogeneous_instances=count))


def measure(policy: str, requests: int, scale: int) -> dict[str, float]:
    """Simulate once, here."""
    question = Question(scaled(paper_case(), scale), policies=(policy,), requests=requests)
    began_s = time.process_time()
    contender = contenders_of(question, note=print)[0]
    planned_s = time.process_time()
    workload_of(question, contender)
    drawn_s = time.process_time()
    found = run(question, contender, lambda name, share: None)
    ended_s = time.process_time()
    return {
        "plan_s": planned_s - began_s,
        "generate_s": drawn_s - planned_s,
        "simulate_s": found.cpu_s,
        "all_s": ended_s - drawn_s,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measured(policy: str, requests: int, scale: int) -> dict[str, float]:
    """Simulate once, in a process of its own."""
    command = [sys.executable, __file__, "--one", policy, str(requests), str(scale)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def report_million(policies: list[str]) -> None:
    rows = [["1,000,000 REQUESTS", "CPU S", "WITH SUMMARY", "US/REQUEST", "PEAK RSS MIB"]]
    for policy in policies:
        found = measured(policy, MILLION, 1)
        rows.append(
            [
                policy,
                f"{found['simulate_s']:.1f}",
                f"{found['all_s']:.1f}",
                f"{found['simulate_s'] / MILLION * 1e6:.1f}",
                f"{found['rss_mib']:.0f}",
            ]
        )
    print("\n".join(table(rows)))


def report_scales(policies: list[str], requests: int, rounds: int) -> None:
    rows = [["US/REQUEST", *(f"{96 * scale} GPUS" for scale in SCALES)]]
    for policy in policies:
        turns = [
            [measured(policy, requests, scale)["simulate_s"] for scale in SCALES]
            for _ in range(rounds)
        ]
        least = [min(column) / requests * 1e6 for column in zip(*turns, strict=True)]
        rows.append([policy, *(f"{each:.1f}" for each in least)])
    print("\n".join(table(rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, metavar=("POLICY", "REQUESTS", "SCALE"))
    parser.add_argument("--policy", action="append", help="threshold and prfaas by default")
    parser.add_argument("--requests", type=int, default=200_000, help="of each run over GPUs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.one:
        policy, requests, scale = options.one
        print(json.dumps(measure(policy, int(requests), int(scale))))
        return
    policies = options.policy or ["threshold", "prfaas"]
    report_million(policies)
    print()
    report_scales(policies, options.requests, options.rounds)


if __name__ == "__main__":
    main()
