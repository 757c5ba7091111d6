"""How much of the KV transfer a request waits for, layer by layer and chunk by chunk.

Usage: pipelining.py [--out FILE] [--repeats N] [--tokens N]. Needs root; takes some five minutes.
Deploys two emulated regions twice, `--pipelining layer` and `chunk`. A prompt is prefilled in the
decode's region (local) and across the link at rates where its KV cache takes 0.2, 0.5 and 0.8 of
T_prefill. The exposed time is what the time to first token has more across than locally.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests/support"), str(Path(__file__).parent)]

from deployment import Deployment, deployed  # noqa: E402
from pipelining_model import kv_bytes_per_token, make_model  # noqa: E402

CONTENDERS = ("layer", "chunk")
SHARES = (0.2, 0.5, 0.8)
RTT = "20ms"
NEVER, ALWAYS = 1 << 20, 0

Row = dict[str, Any]


class Bench:
    """One deployment and what is asked of it."""

    def __init__(self, regions: Deployment, *, tokens: int, repeats: int) -> None:
        self.regions = regions
        self.tokens = tokens
        self.repeats = repeats
        self._rng = random.Random(1)

    def set_rate(self, rate_bytes_per_s: float) -> None:
        """Change the link, both ways."""
        rate = f"{round(rate_bytes_per_s * 8 / 1000)}kbit"
        done = self.regions.ctl("link set a-b", "--rate", rate, "--rtt", RTT)
        assert done.returncode == 0, done.stderr

    def set_threshold(self, tokens: int) -> None:
        """Have longer prompts offloaded."""
        data = json.dumps({"threshold_tokens": tokens}).encode()
        request = urllib.request.Request(
            self.regions.url + "/admin/v1/policy",
            data,
            {"content-type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert json.load(answer)["threshold_tokens"] == tokens

    def ttft_s(self, threshold: int) -> float:
        """Return the time to first token of a prompt that nobody has seen."""
        self.set_threshold(threshold)
        prompt = [self._rng.randrange(3, 512) for _ in range(self.tokens)]
        sampling = {"temperature": 0, "max_new_tokens": 2, "ignore_eos": True}
        body = {"input_ids": prompt, "sampling_params": sampling, "stream": True}
        request = urllib.request.Request(
            self.regions.url + "/generate",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        began_s = time.perf_counter()
        with urllib.request.urlopen(request, timeout=120) as answer:
            route = answer.headers["x-prfaas-route"]
            assert route == ("local" if threshold == NEVER else "offload"), route
            answer.readline()
            ttft_s = time.perf_counter() - began_s
            answer.read()
        return ttft_s

    def compare(self) -> tuple[list[float], list[float]]:
        """Return the times of local and remote prefills, taken in turns."""
        pairs = [(self.ttft_s(NEVER), self.ttft_s(ALWAYS)) for _ in range(self.repeats)]
        return [local for local, _ in pairs], [remote for _, remote in pairs]


def measure(bench: Bench, contender: str, add: Callable[[str, str, str, float, str], None]) -> None:
    """Add the rows of one contender."""
    kv_bytes = kv_bytes_per_token() * bench.tokens
    for threshold in (NEVER, ALWAYS) * 2:
        bench.ttft_s(threshold)
    prefill_s = statistics.median(bench.ttft_s(NEVER) for _ in range(bench.repeats))
    for share in SHARES:
        transfer_s = share * prefill_s
        rate = kv_bytes / transfer_s
        bench.set_rate(rate)
        bench.ttft_s(ALWAYS)
        local, remote = bench.compare()
        exposed_s = statistics.median(
            across - here for here, across in zip(local, remote, strict=True)
        )
        case = f"transfer of {share:g} T_prefill"
        add(case, contender, "link_rate", rate * 8 / 1e6, "Mbit/s")
        add(case, contender, "transfer_s", transfer_s, "s")
        add(case, contender, "ttft_local_s", statistics.median(local), "s")
        add(case, contender, "ttft_remote_s", statistics.median(remote), "s")
        add(case, contender, "exposed_s", exposed_s, "s")
        add(case, contender, "exposed_share", exposed_s / transfer_s, "of the transfer")
    pipelining = bench.regions.stats("a-prefill-0")["pipelining"]
    hook = pipelining["hook_s"]
    events = sum(hook["counts"])
    if events:
        add("layer events", contender, "events", events, "")
        add("layer events", contender, "mean_us", hook["sum"] / events * 1e6, "us")
        under = sum(hook["counts"][: hook["bounds"].index(100e-6) + 1])
        add("layer events", contender, "under_100_us", under / events, "share")


def run(arguments: Sequence[str]) -> int:
    """Measure all, print rows as they come, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench/pipelining.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=1024)
    chosen = parser.parse_args(arguments)
    rows: list[Row] = []

    def add(case: str, contender: str, metric: str, value: float, unit: str) -> None:
        names = ("case", "contender", "metric", "value", "unit")
        rows.append(dict(zip(names, (case, contender, metric, round(value, 4), unit), strict=True)))
        print(f"{case:>24} {contender:>6} {metric:<14} {value:10.4f} {unit}", flush=True)

    model = make_model(chosen.out.parent / "models")
    with tempfile.TemporaryDirectory() as folder:
        for contender in CONTENDERS:
            regions = Deployment("pipelining", Path(folder), model)
            with deployed(regions, "--pipelining", contender, "--link-rtt", RTT):
                bench = Bench(regions, tokens=chosen.tokens, repeats=chosen.repeats)
                measure(bench, contender, add)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
