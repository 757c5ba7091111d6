"""Real SGLang engines that keep their prefixes in a real pool."""

import time
from pathlib import Path
from typing import Any

from pool_service import PoolProcess
from sglang_engines import Engine, EngineStarter, post

from prfaas.pool_section import PoolSection
from prfaas_agent.pool_args import pool_arguments
from prfaas_pool import PoolClient

POOL_BYTES = 48 << 20
BLOCK_BYTES = 64 << 10
#: SGLang's own page on GPUs; hybrids and sliding windows need 1 on a CPU.
PAGE_TOKENS = {"qwen3-tiny": 16}


def start_pool(directory: Path) -> PoolProcess:
    """Start a pool service of a size that is never full."""
    return PoolProcess(directory, num_bytes=POOL_BYTES, block_bytes=BLOCK_BYTES)


def start_pooled(
    starter: EngineStarter, model: Path, pool: PoolProcess | None, *, name: str
) -> Engine:
    """Start an engine on a pool, or without one; does not wait for it."""
    extra = ["--page-size", str(PAGE_TOKENS.get(model.name, 1))]
    if pool is not None:
        extra += pool_arguments(PoolSection(str(pool.socket)), model_id=model.name)
    return starter.start(model, name=name, extra=extra)


def answer(engine: Engine, prompt: list[int], *, tokens: int, tenant: str = "") -> dict[str, Any]:
    """Return SGLang's whole answer. Requests of two tenants share no cache."""
    body: dict[str, Any] = {
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    }
    if tenant:
        body["extra_key"] = tenant
    found = post(f"{engine.url}/generate", body)
    assert "output_ids" in found, found
    return found


def cached_tokens(found: dict[str, Any]) -> int:
    """Return how many tokens of its prompt a request did not compute."""
    return int(found["meta_info"]["cached_tokens"])


def wait_stored(socket: Path, *, quiet_s: float = 1.5, limit_s: float = 20.0) -> dict[str, Any]:
    """Wait until engines have written what they had to, and return the pool's figures.

    An engine without work looks after its writes once a second (SGLang's `--sleep-on-idle`).
    """
    client = PoolClient(socket)
    deadline_s = time.monotonic() + limit_s
    seen: list[Any] = []
    since_s = time.monotonic()
    try:
        while time.monotonic() < deadline_s:
            stats = client.stats()
            assert stats is not None
            now = [stats["stored_items"], stats["holds"]]
            if now != seen:
                seen, since_s = now, time.monotonic()
            elif stats["stored_items"] and time.monotonic() - since_s > quiet_s:
                return stats
            time.sleep(0.05)
    finally:
        client.close()
    raise AssertionError(f"engines store nothing, or never stop: {seen}")
