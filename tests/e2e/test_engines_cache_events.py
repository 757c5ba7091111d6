"""Who has read all cache events knows how many tokens of any prompt SGLang takes from its cache."""

import random
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deployment import wait_until
from prompts import SPECIAL_TOKENS, VOCABULARY
from sglang_engines import Engine, ForkServerProcess, post

from prfaas.cache_events import BlockRemoved, StateRemoved, StateStored, WindowRemoved
from prfaas_cpu.models import TINY_MODELS
from prfaas_transport.event_socket import EventReader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: So small that most of what is cached is evicted again.
POOLS = ("--max-total-tokens", "2500", "--max-mamba-cache-size", "12", "--swa-full-tokens-ratio")
REQUESTS = 60


@dataclass
class Watched:
    """An engine and a reader of its cache events."""

    engine: Engine
    reader: EventReader
    seen: set[type] = field(default_factory=set)

    def ask(self, prompt: list[int], tokens: int) -> tuple[list[int], int]:
        """Return the answer and how many tokens came from the cache."""
        body = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        answer = post(f"{self.engine.url}/generate", {"input_ids": prompt, "sampling_params": body})
        return answer["output_ids"], answer["meta_info"]["cached_tokens"]

    def catch_up(self) -> None:
        for batch in self.reader.catch_up(quiet_s=0.15):
            self.seen |= {type(event) for event in batch.events}


@pytest.fixture(params=TINY_MODELS)
def watched(
    request: pytest.FixtureRequest,
    fork_server: ForkServerProcess,
    models_dir: Path,
    tmp_path: Path,
) -> Iterator[Watched]:
    path = tmp_path / "events.sock"
    engine = fork_server.start(
        models_dir / request.param,
        name="watched",
        extra=["--kv-events-config", '{"publisher": "prfaas"}', *POOLS, "0.4"],
        PRFAAS_EVENTS_SOCKET=str(path),
    )
    with fork_server.running(engine):
        reader = EventReader(path)
        watched = Watched(engine, reader)
        watched.ask([9, 8, 7], 1)
        wait_until(path.exists, timeout_s=10, what="the engine publishes events")
        reader.connect()
        yield watched
        reader.close()


def prompts(rng: random.Random) -> Iterator[list[int]]:
    """Yield prompts that are new, repeat others, fork from them, go on where they ended."""
    told: list[list[int]] = []
    for _ in range(REQUESTS):
        trunk = rng.choice(told) if told and rng.random() < 0.75 else []
        cut = rng.choice([len(trunk), rng.randrange(len(trunk) + 1), len(trunk) // 256 * 256])
        more = [
            rng.randrange(SPECIAL_TOKENS, VOCABULARY) for _ in range(rng.choice([0, 1, 30, 300]))
        ]
        prompt = (trunk[:cut] + more)[:1200]
        if len(prompt) >= 3:
            told.append(prompt)
            yield prompt


def test_events_predict_what_the_engine_reuses(watched: Watched) -> None:
    rng = random.Random(7)
    wrong, hits = [], 0
    for prompt in prompts(rng):
        watched.catch_up()
        predicted = watched.reader.mirror.reusable_tokens(prompt)
        _, cached = watched.ask(prompt, rng.choice([1, 5, 20]))
        hits += cached > 0
        if predicted != cached:
            wrong.append((len(prompt), predicted, cached))
    assert wrong == []
    # The prompts had something to reuse, and what they had was evicted.
    assert hits > REQUESTS // 4
    shape = watched.reader.mirror.shape
    expected = {BlockRemoved}
    expected |= {StateStored, StateRemoved} if shape.stateful else set()
    expected |= {WindowRemoved} if shape.window_tokens else set()
    assert expected <= watched.seen
    # Who comes later is told the same.
    late = EventReader(watched.reader.path)
    late.connect()
    watched.catch_up()
    for _ in late.catch_up(quiet_s=0.3):
        pass
    late.close()
    assert late.seq == watched.reader.seq
    for prompt in prompts(random.Random(7)):
        assert late.mirror.reusable_tokens(prompt) == watched.reader.mirror.reusable_tokens(prompt)
    with urllib.request.urlopen(f"{watched.engine.url}/flush_cache", data=b"", timeout=10):
        pass
    watched.ask([9, 8, 7], 1)
    watched.catch_up()
    assert watched.reader.mirror.num_blocks <= 4
