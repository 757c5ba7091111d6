"""What a prefix pool gives: hit rate and prefill time of conversations, with it and without.

Conversations of some turns go to two engines in turn, as a router may send them, and one engine is
replaced half way. Rows go to build/bench/pool.json.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from pooled_engines import answer, cached_tokens, start_pool, start_pooled, wait_stored  # noqa: E402
from prompts import SPECIAL_TOKENS, VOCABULARY  # noqa: E402
from sglang_engines import Engine, ForkServerProcess  # noqa: E402

from prfaas_cpu.models import default_models_dir  # noqa: E402
from prfaas_pool import PoolClient  # noqa: E402

CONVERSATIONS = 4
TURNS = 4
SYSTEM_TOKENS = 1024
TURN_TOKENS = 512


def main() -> None:
    """Run the same conversations twice for each model and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="qwen3-next-tiny,qwen3-tiny")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "pool.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="prfaas-bench-pool-") as directory:
        fork_server = ForkServerProcess(Path(directory))
        try:
            for model in options.models.split(","):
                for is_pooled in (False, True):
                    rows.append(measure(fork_server, Path(directory), model, is_pooled=is_pooled))
                    print(json.dumps(rows[-1]), flush=True)
        finally:
            fork_server.close()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def measure(
    fork_server: ForkServerProcess, directory: Path, model: str, *, is_pooled: bool
) -> dict[str, Any]:
    """Return one row: the conversations on two engines, one of them replaced half way."""
    home = directory / f"{model}-{is_pooled}"
    home.mkdir()
    pool = start_pool(home) if is_pooled else None
    path = default_models_dir() / model

    def start(name: str) -> Engine:
        return start_pooled(fork_server, path, pool, name=f"{model}-{is_pooled}-{name}")

    engines = [start("a"), start("b")]
    try:
        for engine in engines:
            engine.wait_healthy()
            answer(engine, random_tokens(random.Random(9), 40), tokens=1, tenant="warm-up")
        requests = []
        for turn in range(TURNS):
            if turn == TURNS // 2:
                engines[0].kill()
                engines[0] = start("c")
                engines[0].wait_healthy()
            requests += one_turn(engines, turn)
            if pool is not None:
                wait_stored(pool.socket)
        stats = PoolClient(pool.socket).stats() if pool else None
    finally:
        for engine in engines:
            engine.kill()
        if pool is not None:
            pool.close()
    return summary(model, requests, is_pooled=is_pooled, stats=stats)


def one_turn(engines: list[Engine], turn: int) -> list[tuple[int, int, float]]:
    """Send every conversation's prompt of this turn; return (prompt, cached tokens, seconds)."""
    done = []
    for number in range(CONVERSATIONS):
        rng = random.Random(100 + number)
        system = random_tokens(random.Random(1), SYSTEM_TOKENS)
        prompt = system + random_tokens(rng, TURN_TOKENS * (turn + 1))
        began_s = time.perf_counter()
        found = answer(engines[(turn + number) % len(engines)], prompt, tokens=1)
        done.append((len(prompt), cached_tokens(found), time.perf_counter() - began_s))
    return done


def random_tokens(rng: random.Random, count: int) -> list[int]:
    """Return tokens that are no special ones."""
    return [rng.randrange(SPECIAL_TOKENS, VOCABULARY) for _ in range(count)]


def summary(
    model: str,
    requests: list[tuple[int, int, float]],
    *,
    is_pooled: bool,
    stats: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the row of one run; times are seconds until the first token."""
    prompt = sum(item[0] for item in requests)
    cached = sum(item[1] for item in requests)
    return {
        "model": model,
        "pool": is_pooled,
        "requests": len(requests),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "hit_rate": round(cached / prompt, 3),
        "ttft_mean_s": round(statistics.mean(item[2] for item in requests), 3),
        "ttft_total_s": round(sum(item[2] for item in requests), 2),
        "pool_bytes_used": stats["prefix_blocks"] * stats["block_bytes"] if stats else 0,
    }


if __name__ == "__main__":
    main()
