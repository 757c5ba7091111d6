"""Layer-wise sending on real engines: one server's tokens, early bytes, nothing left behind."""

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prompts import SPECIAL_TOKENS, VOCABULARY
from sglang_engines import Engine, ForkServerProcess, generate, generate_pair
from waiting import until

from prfaas_cpu.models import TINY_MODELS
from prfaas_transport import read_stats

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TOKENS = 12
CHUNK_TOKENS = 512


def prompt(num_tokens: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(SPECIAL_TOKENS, VOCABULARY) for _ in range(num_tokens)]


@dataclass
class Rig:
    """Two prefills that pipeline differently, decodes with and without a cache, a plain server."""

    layer: Engine
    chunk: Engine
    decode: Engine
    caching_decode: Engine
    plain: Engine
    directory: Path

    def __post_init__(self) -> None:
        self.rooms = count(1)
        self._expected: dict[tuple[int, ...], list[int]] = {}

    def ask(self, prefill: Engine, decode: Engine, tokens: list[int]) -> list[int]:
        return generate_pair(prefill, decode, tokens, tokens=TOKENS, room=next(self.rooms))

    def expected(self, tokens: list[int]) -> list[int]:
        key = tuple(tokens)
        if key not in self._expected:
            self._expected[key] = generate(self.plain.url, tokens, tokens=TOKENS)
        return self._expected[key]

    def stats(self, prefill: Engine) -> dict[str, Any]:
        return dict(read_stats(prefill.log.with_suffix(".stats"), timeout_s=5))

    def pipelining(self, prefill: Engine) -> dict[str, Any]:
        return dict(self.stats(prefill)["pipelining"])


@pytest.fixture(scope="module", params=TINY_MODELS)
def rig(
    request: pytest.FixtureRequest, fork_server: ForkServerProcess, models_dir: Path
) -> Iterator[Rig]:
    model, name = models_dir / request.param, f"lw-{request.param}"
    cache = ["--disaggregation-decode-enable-radix-cache"]
    engines = [
        fork_server.start_prefill(model, name=f"{name}-layer", transfer={}),
        fork_server.start_prefill(model, name=f"{name}-chunk", transfer={"pipelining": "chunk"}),
        fork_server.start_decode(model, name=f"{name}-decode"),
        fork_server.start_decode(model, name=f"{name}-caching", extra=cache),
        fork_server.start(model, name=f"{name}-plain"),
    ]
    with fork_server.running(*engines):
        yield Rig(*engines, directory=engines[0].log.parent)


def test_tokens_equal_whatever_is_chunked_or_cached(rig: Rig) -> None:
    """Prompts of one prefill chunk and of several; both sides cold, then either, then both warm."""
    prompts = [prompt(n, seed=n) for n in (5, 300, CHUNK_TOKENS + 1, 1300)]
    longer = [tokens + prompt(40, seed=1) for tokens in prompts[1:3]]
    forked = [tokens[: len(tokens) // 2] + prompt(90, seed=2) for tokens in prompts[1:4:2]]
    for prefill, decode in (
        (rig.layer, rig.decode),
        (rig.layer, rig.caching_decode),
        (rig.chunk, rig.caching_decode),
        (rig.layer, rig.caching_decode),
    ):
        for tokens in (*prompts, *longer, *forked):
            assert rig.ask(prefill, decode, tokens) == rig.expected(tokens), len(tokens)
    by_layer, by_chunk = rig.pipelining(rig.layer), rig.pipelining(rig.chunk)
    # A prompt that decode holds whole sends no page, so that nothing of it is planned.
    assert by_layer["chunks_total"] >= 12
    assert by_layer["fallbacks_total"] == {}
    assert by_chunk["mode"] == "chunk"
    assert by_chunk["chunks_total"] == by_chunk["layers_early_total"] == 0


def test_requests_of_one_batch_do_not_mix(rig: Rig) -> None:
    """Equal prompts among them: the cache then frees the pages of all but one at once."""
    prompts = [prompt(n, seed=100 + n) for n in (40, 200, 450, 700)]
    together = [*prompts, *prompts, prompts[2][:300] + prompt(60, seed=3), *prompts[:2]]
    expected = [rig.expected(tokens) for tokens in together]
    for _ in range(2):
        with ThreadPoolExecutor(len(together)) as pool:
            asked = [pool.submit(rig.ask, rig.layer, rig.decode, p) for p in together]
            assert [answer.result() for answer in asked] == expected
    assert rig.pipelining(rig.layer)["fallbacks_total"] == {}
    assert rig.stats(rig.layer)["rooms_failed_total"] == {}


def test_the_first_layers_are_acknowledged_before_the_last_is_computed(rig: Rig) -> None:
    """A busy machine may run the announcer's thread late, so one prompt of a few must show it."""
    rig.ask(rig.layer, rig.decode, prompt(20, seed=50))
    seen = []
    for seed in range(51, 59):
        until(lambda: rig.stats(rig.layer)["rooms_open"] == 0)
        before = rig.pipelining(rig.layer)
        rig.ask(rig.layer, rig.decode, prompt(CHUNK_TOKENS - 10, seed=seed))
        until(lambda: rig.stats(rig.layer)["rooms_open"] == 0)
        after = rig.pipelining(rig.layer)
        gained = {
            name: after[f"{name}_total"] - before[f"{name}_total"]
            for name in ("chunks", "layers_early", "layers_late", "chunks_acked_early")
        }
        seen.append(gained)
        assert gained["chunks"] == 1
        assert gained["layers_early"] + gained["layers_late"] >= 4
        if gained["layers_late"] == 0 and gained["chunks_acked_early"] >= 2:
            return
    raise AssertionError(f"no prompt's layers went early: {seen}")


def test_clients_that_leave_at_any_moment_leave_nothing_behind(rig: Rig) -> None:
    """SGLang ends an engine that is idle and lacks a page; both must go on as before."""
    survivor = prompt(600, seed=70)
    expected = rig.expected(survivor)
    began = {side.log: side.log.stat().st_size for side in (rig.layer, rig.decode)}
    rng = random.Random(4)
    with ThreadPoolExecutor(16) as pool:
        leavers = [
            pool.submit(leave, rig, prompt(1500, seed=71 + i % 3), rng.uniform(0.0, 1.5))
            for i in range(8)
        ]
        stays = [pool.submit(rig.ask, rig.layer, rig.decode, survivor) for _ in range(3)]
        assert [answer.result() for answer in stays] == [expected] * 3
        for leaver in leavers:
            leaver.result()
    for side in (rig.layer, rig.decode):
        until(lambda side=side: rig.stats(side)["rooms_open"] == 0, limit_s=60)
    time.sleep(1.0)  # an idle scheduler counts its pages
    assert rig.ask(rig.layer, rig.decode, survivor) == expected
    assert "hook_exception" not in rig.pipelining(rig.layer)["fallbacks_total"]
    for log_file, size in began.items():  # before that SGLang's own warm-up may fail
        log = log_file.read_bytes()[size:].decode()
        assert "memory leak" not in log
        assert "Traceback" not in log.replace("KVTransferError", "")


def leave(rig: Rig, tokens: list[int], after_s: float) -> None:
    """Ask both sides and hang up."""
    body = {
        "input_ids": tokens,
        "sampling_params": {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True},
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": rig.layer.bootstrap_port,
        "bootstrap_room": next(rig.rooms),
        "stream": True,
    }
    data = json.dumps(body).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for side in (rig.layer, rig.decode):
            sock = socket.create_connection(("127.0.0.1", side.port), timeout=30)
            stack.enter_context(sock)
            sock.sendall(head.encode() + data)
        time.sleep(after_s)
