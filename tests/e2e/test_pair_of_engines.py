"""A prefill and a decode alone: only what is new is sent, and the two can change their roles."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from cache_bytes import AUX_BYTES, geometry, sent_bytes
from deployment import wait_until
from prompts import token_prompts
from sglang_engines import Engine, ForkServerProcess, generate, generate_pair, post

from prfaas_cpu.models import TINY_MODELS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOKENS = 16
ROOMS = count(1)


@dataclass
class Pair:
    """Two engines that can change their roles, and one plain server to compare with."""

    starter: ForkServerProcess
    model: Path
    engines: dict[str, Engine]
    plain: Engine
    prefill: str = "one"
    decode: str = "two"
    sent_bytes: list[int] = field(default_factory=list)

    def ask(self, prompt: list[int]) -> list[int]:
        """Return the pair's answer, which must be the plain server's; notes what was sent."""
        expected = generate(self.plain.url, prompt, tokens=TOKENS)
        before = self.starter.stats(self.prefill)["payload_bytes_sent_total"]
        prefill, decode = self.engines[self.prefill], self.engines[self.decode]
        said = generate_pair(prefill, decode, prompt, tokens=TOKENS, room=next(ROOMS))
        after = self.starter.stats(self.prefill)["payload_bytes_sent_total"]
        assert said == expected, f"{len(prompt)} tokens"
        self.sent_bytes.append(after - before)
        return said

    def converse(self, seed: int) -> None:
        """Ask, repeat, and go on asking; every time only what the decode lacks is sent."""
        model = geometry(self.model)
        opening, question = token_prompts(seed)[9], token_prompts(seed + 1)[3]
        self.sent_bytes.clear()
        answer = self.ask(opening)
        self.ask(opening)
        self.ask([*opening, *answer, *question])
        # The last token of an answer was never computed, so its cache is not there.
        new_tokens = (len(opening), 0, 1 + len(question))
        assert self.sent_bytes == [sent_bytes(model, n) + AUX_BYTES for n in new_tokens]

    def swap(self) -> None:
        """Let the two change their roles."""
        for name, role in ((self.prefill, "decode"), (self.decode, "prefill")):
            body = {"new_role": role, "decode_cuda_graph_memory_gb": 0}
            answer = post(f"{self.engines[name].url}/pd_role_switch", body)
            assert answer["success"], answer
        self.prefill, self.decode = self.decode, self.prefill


@pytest.fixture(scope="module", params=TINY_MODELS)
def pair(
    request: pytest.FixtureRequest, fork_server: ForkServerProcess, models_dir: Path
) -> Iterator[Pair]:
    model = models_dir / request.param
    engines = {
        "one": fork_server.start_switchable(model, name="one", role="prefill"),
        "two": fork_server.start_switchable(model, name="two", role="decode"),
    }
    plain = fork_server.start(model, name="plain")
    with fork_server.running(*engines.values(), plain):
        yield Pair(fork_server, model, engines, plain)


def test_only_what_the_decode_has_not_cached_is_sent(pair: Pair) -> None:
    pair.converse(seed=41)


def test_a_fork_from_a_cached_prompt_is_right(pair: Pair) -> None:
    """A decode may hold a fork's pages and not its state; either way the tokens are right."""
    trunk = token_prompts(seed=43)[10]
    pair.ask(trunk)
    for length in (100, 256):
        pair.ask([*trunk[:length], *token_prompts(seed=44)[5]])


def test_roles_swapped_and_swapped_back_serve_as_before(pair: Pair) -> None:
    for seed in (45, 47):
        pair.swap()
        pair.converse(seed)
    threads = threads_of(pair)
    for _ in range(4):
        pair.swap()
    pair.ask(token_prompts(seed=49)[3])
    # A role's threads end with it.
    wait_until(lambda: threads_of(pair) <= threads, timeout_s=10, what=f"{threads} threads again")


def threads_of(pair: Pair) -> int:
    """Return how many threads the processes below the engines have."""
    pids = [engine.pid for engine in pair.engines.values()]
    children = [
        child
        for pid in pids
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]
    return sum(len(list(Path(f"/proc/{child}/task").iterdir())) for child in children)
