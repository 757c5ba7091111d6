"""Prefixes in a host's pool: written by one engine, used by the next, right to the last token."""

import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pool_service import PoolProcess
from pooled_engines import answer, cached_tokens, start_pool, start_pooled, wait_stored
from prompts import SPECIAL_TOKENS, VOCABULARY
from sglang_engines import ForkServerProcess

from prfaas.blocks.page_hashes import page_hashes
from prfaas_pool.mover import Mover, new_room
from prfaas_transport import TransportConfig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOKENS = 12
#: The chunked prefill size: a state is kept there, and at the prompt's end.
CHUNK = 512
LENGTH = 700


def tokens(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(SPECIAL_TOKENS, VOCABULARY) for _ in range(count)]


PROMPT = tokens(LENGTH, 1)
CONTINUED = [*PROMPT, *tokens(150, 2)]
FORKED = [*PROMPT[:600], *tokens(60, 3)]
#: Least tokens that the next engine need not compute: of the prompt continued, of one that forks
#: inside it. With a state only where one was kept.
LEAST_HITS = {
    "qwen3-tiny": (688, 592),
    "qwen3-next-tiny": (700, 512),
    "falcon-h1-tiny": (700, 512),
    "mellum-tiny": (700, 512),
}


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolProcess]:
    pool = start_pool(tmp_path)
    yield pool
    pool.close()


@pytest.mark.parametrize("model", LEAST_HITS)
def test_an_engine_goes_on_where_a_dead_one_ended(
    model: str,
    fork_server: ForkServerProcess,
    models_dir: Path,
    pool: PoolProcess,
    tmp_path: Path,
) -> None:
    prompts = {"continued": CONTINUED, "forked": FORKED, "same": PROMPT}
    first = start_pooled(fork_server, models_dir / model, pool, name=f"pool-{model}-1")
    with fork_server.running(first):
        # Each of another tenant, so each computed from its first token on.
        cold = {
            name: answer(first, prompt, tokens=TOKENS, tenant=name)
            for name, prompt in prompts.items()
        }
        assert {cached_tokens(found) for found in cold.values()} == {0}
        answer(first, PROMPT, tokens=TOKENS)
        wait_stored(pool.socket)
        _check_move(model, pool, tmp_path)
    pool.kill()
    pool.start()
    second = start_pooled(fork_server, models_dir / model, pool, name=f"pool-{model}-2")
    with fork_server.running(second):
        assert cached_tokens(answer(second, PROMPT, tokens=1, tenant="nobody")) == 0
        warm = {name: answer(second, prompt, tokens=TOKENS) for name, prompt in prompts.items()}
        # What SGLang also does at a role switch.
        assert _post_status(f"{second.url}/hicache/storage-backend/clear") == 200
        stats = wait_stored(pool.socket)
    assert {name: found["output_ids"] for name, found in warm.items()} == {
        name: found["output_ids"] for name, found in cold.items()
    }
    hits = (cached_tokens(warm["continued"]), cached_tokens(warm["forked"]))
    assert hits >= LEAST_HITS[model], f"{hits} tokens were cached"
    assert hits[1] >= LEAST_HITS[model][1]
    assert stats["entries"] > 0, "SGLang's clear wiped what others use"
    assert (stats["holds"], stats["transfer_blocks"], stats["dropped"]) == (0, 0, 0)


def _check_move(model: str, pool: PoolProcess, directory: Path) -> None:
    """Move the prompt's prefix to another pool; what its engine could resume from can be, there."""
    (directory / "other").mkdir()
    other = start_pool(directory / "other")
    config = TransportConfig(lanes=2, io_threads=1)
    movers = [
        Mover(str(one.socket), node_id=name, host="127.0.0.1", config=config)
        for name, one in (("source", pool), ("destination", other))
    ]
    source, destination = movers
    try:
        (space,) = source.spaces(model)
        assert space.is_known, "the engine has not told what its prefixes need"
        hashes = page_hashes(np.asarray(PROMPT, "<u4").tobytes(), space.page_tokens)
        lack = destination.lacks(space, hashes)
        assert (lack.kv_pages, lack.usable_pages) == (0, 0)
        found = source.offer(new_room(), space.model, space.layout, lack.chain, have=(0, 0))
        assert found is not None
        taken = destination.take(lack, *found)
        assert taken.pages == source.lacks(space, hashes).usable_pages > 0
        assert destination.lacks(space, hashes).usable_pages == taken.pages
    finally:
        for mover in movers:
            mover.close()
        other.close()


def _post_status(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, b""), timeout=30) as response:
        return int(response.status)
