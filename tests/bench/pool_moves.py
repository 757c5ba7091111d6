"""What moves between regions give: hit rate and prefill time of conversations that change region.

Two engines, each with a pool of its own, as in two regions; every conversation's turns go to them
in turn. Once nothing is moved; once a turn's prefix is moved to where the turn goes before it goes
there, over lanes on loopback, and the time of the move counts. Rows go to
build/bench/pool-moves.json.
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
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "bench")]

import numpy as np  # noqa: E402
from pool import CONVERSATIONS, SYSTEM_TOKENS, TURN_TOKENS, TURNS, random_tokens  # noqa: E402
from pool_service import PoolProcess  # noqa: E402
from pooled_engines import answer, cached_tokens, start_pool, start_pooled, wait_stored  # noqa: E402
from sglang_engines import Engine, ForkServerProcess  # noqa: E402

from prfaas.blocks.page_hashes import page_hashes  # noqa: E402
from prfaas_cpu.models import default_models_dir  # noqa: E402
from prfaas_pool.mover import Mover, new_room  # noqa: E402
from prfaas_transport import TransportConfig  # noqa: E402


def main() -> None:
    """Run the same conversations twice for each model, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="qwen3-next-tiny,qwen3-tiny")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "pool-moves.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="prfaas-bench-moves-") as directory:
        fork_server = ForkServerProcess(Path(directory))
        try:
            for model in options.models.split(","):
                for moves in (False, True):
                    rows.append(measure(fork_server, Path(directory), model, moves=moves))
                    print(json.dumps(rows[-1]), flush=True)
        finally:
            fork_server.close()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


class Region:
    """A pool, an engine on it, and who moves prefixes."""

    def __init__(
        self, fork_server: ForkServerProcess, directory: Path, model: str, name: str
    ) -> None:
        (directory / name).mkdir(parents=True)
        self.pool: PoolProcess = start_pool(directory / name)
        path = default_models_dir() / model
        self.engine: Engine = start_pooled(
            fork_server, path, self.pool, name=f"{directory.name}-{name}"
        )
        config = TransportConfig(lanes=4, io_threads=2)
        self.mover = Mover(str(self.pool.socket), node_id=name, host="127.0.0.1", config=config)

    def fetch(self, model: str, prompt: list[int], source: "Region") -> int:
        """Bring what the source has of a prompt; return how many bytes that took."""
        raw = np.asarray(prompt[:-1], dtype="<u4").tobytes()
        moved = 0
        for space in self.mover.spaces(model):
            lack = self.mover.lacks(space, page_hashes(raw, space.page_tokens))
            have = (lack.kv_pages, lack.usable_pages)
            found = source.mover.offer(new_room(), space.model, space.layout, lack.chain, have=have)
            moved += self.mover.take(lack, *found).num_bytes if found else 0
        return moved

    def close(self) -> None:
        self.mover.close()
        self.engine.kill()
        self.pool.close()


def measure(
    fork_server: ForkServerProcess, directory: Path, model: str, *, moves: bool
) -> dict[str, Any]:
    """Return one row."""
    home = directory / f"{model}-{moves}"
    regions = [Region(fork_server, home, model, name) for name in ("a", "b")]
    turns = []
    try:
        for region in regions:
            region.engine.wait_healthy()
            warm_up = random_tokens(random.Random(9), 40)
            answer(region.engine, warm_up, tokens=1, tenant="warm-up")
        for turn in range(TURNS):
            for number in range(CONVERSATIONS):
                here = regions[(turn + number) % 2]
                there = regions[(turn + number + 1) % 2]
                turns.append(one(model, turn, number, here, there if moves else None))
            for region in regions:
                wait_stored(region.pool.socket)
    finally:
        for region in regions:
            region.close()
    return summary(model, turns, moves=moves)


def one(
    model: str, turn: int, number: int, here: Region, there: Region | None
) -> tuple[int, int, float, float, int]:
    """Send a turn; return (prompt, cached tokens, seconds, those of the move, bytes moved)."""
    rng = random.Random(100 + number)
    prompt = random_tokens(random.Random(1), SYSTEM_TOKENS)
    prompt += random_tokens(rng, TURN_TOKENS * (turn + 1))
    began_s = time.perf_counter()
    moved = here.fetch(model, prompt, there) if there else 0
    move_s = time.perf_counter() - began_s
    found = answer(here.engine, prompt, tokens=1)
    return len(prompt), cached_tokens(found), time.perf_counter() - began_s, move_s, moved


def summary(
    model: str, turns: list[tuple[int, int, float, float, int]], *, moves: bool
) -> dict[str, Any]:
    """Return the row of one run; times are seconds until the first token, the move included."""
    prompt = sum(turn[0] for turn in turns)
    cached = sum(turn[1] for turn in turns)
    return {
        "model": model,
        "moves": moves,
        "requests": len(turns),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "hit_rate": round(cached / prompt, 3),
        "ttft_mean_s": round(statistics.mean(turn[2] for turn in turns), 3),
        "ttft_total_s": round(sum(turn[2] for turn in turns), 2),
        "move_mean_s": round(statistics.mean(turn[3] for turn in turns), 3),
        "moved_bytes": sum(turn[4] for turn in turns),
    }


if __name__ == "__main__":
    main()
