"""How much of the KV transfer a request waits for, layer by layer and chunk by chunk.

Usage: pipelining.py [--out FILE] [--repeats N] [--tokens N]. Needs root; takes some six minutes.
Deploys two emulated regions twice, `--pipelining layer` and `chunk`. A prompt is prefilled in the
decode's region (local) and across the link at rates where its KV cache takes 0.2, 0.5 and 0.8 of
T_prefill. What is exposed is told twice: as what the time to first token has more across than
locally, which also holds the machine's noise of a whole prefill, and as what the time from the
prefill's end until the decode has everything has more (`drain`), which does not.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests/support"), str(Path(__file__).parent)]

from deployment import Deployment, deployed  # noqa: E402
from pipelining_model import kv_bytes_per_token, make_model  # noqa: E402
from waiting import until  # noqa: E402

CONTENDERS = ("layer", "chunk")
SHARES = (0.2, 0.5, 0.8)
RTT = "20ms"
NEVER, ALWAYS = 1 << 20, 0

Row = dict[str, Any]


class Answer(NamedTuple):
    """One request: its time to first token, and from its prefill's end to the last byte."""

    ttft_s: float
    drain_s: float


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

    def ask(self, *, is_local: bool) -> Answer:
        """Have one prompt prefilled in one of the regions."""
        node = "b-prefill-0" if is_local else "a-prefill-0"
        before = self._drain(node)
        ttft_s = self.ttft_s(NEVER if is_local else ALWAYS)
        until(lambda: sum(self._drain(node)["counts"]) > sum(before["counts"]))
        return Answer(ttft_s, self._drain(node)["sum"] - before["sum"])

    def _drain(self, node: str) -> dict[str, Any]:
        return dict(self.regions.stats(node)["pipelining"]["drain_s"])


def measure(bench: Bench, contender: str, add: Callable[[str, str, str, float, str], None]) -> None:
    """Add the rows of one contender."""
    for is_local in (True, False) * 2:
        bench.ask(is_local=is_local)
    for share in SHARES:
        measure_share(bench, share, partial(add, f"transfer of {share:g} T_prefill", contender))
    hook = bench.regions.stats("a-prefill-0")["pipelining"]["hook_s"]
    if events := sum(hook["counts"]):
        add("layer events", contender, "events", events, "")
        add("layer events", contender, "mean_us", hook["sum"] / events * 1e6, "us")
        under = sum(hook["counts"][: hook["bounds"].index(100e-6) + 1])
        add("layer events", contender, "under_100_us", under / events, "share")


def measure_share(bench: Bench, share: float, add: Callable[[str, float, str], None]) -> None:
    """Measure at a rate where the transfer takes `share` of what a prefill takes just now."""
    tries = max(2, bench.repeats // 2)
    prefill_s = statistics.median(bench.ask(is_local=True).ttft_s for _ in range(tries))
    transfer_s = share * prefill_s
    rate = kv_bytes_per_token() * bench.tokens / transfer_s
    bench.set_rate(rate)
    bench.ask(is_local=False)
    pairs = [(bench.ask(is_local=True), bench.ask(is_local=False)) for _ in range(bench.repeats)]
    exposed_s = statistics.median(away.ttft_s - here.ttft_s for here, away in pairs)
    drained_s = statistics.median(away.drain_s - here.drain_s for here, away in pairs)
    add("link_rate", rate * 8 / 1e6, "Mbit/s")
    add("transfer_s", transfer_s, "s")
    add("ttft_local_s", statistics.median(here.ttft_s for here, _ in pairs), "s")
    add("ttft_remote_s", statistics.median(away.ttft_s for _, away in pairs), "s")
    add("exposed_s", exposed_s, "s")
    add("exposed_share", exposed_s / transfer_s, "of the transfer")
    add("drain_s", drained_s, "s")
    add("drain_share", drained_s / transfer_s, "of the transfer")


def run(arguments: Sequence[str]) -> int:
    """Measure all, print rows as they come, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
