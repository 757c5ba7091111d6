"""Tokens through two regions equal those of one server, for every model, in every way of asking."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from cache_bytes import AUX_BYTES, geometry, sent_bytes
from deployment import Answer, Deployment, deployed
from prompts import token_prompts
from sglang_engines import EngineStarter, generate, post

from prfaas_cpu.models import TINY_MODELS

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(600)]

TOKENS = 16
THRESHOLD = 512
TEXTS = ("Hello", "The capital of France is", "Once upon a time there was a link. " * 60)
Ask = Callable[[list[int]], Answer]


@dataclass
class Rig:
    """A deployment, and one plain server with what it says to every prompt."""

    regions: Deployment
    plain_url: str
    prompts: list[list[int]]
    expected: list[list[int]]


@pytest.fixture(scope="module", params=TINY_MODELS)
def rig(
    request: pytest.FixtureRequest,
    models_dir: Path,
    deployment_name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("state")
    model = models_dir / request.param
    with deployed(
        Deployment(deployment_name, directory, model), "--threshold", str(THRESHOLD)
    ) as regions:
        starter = EngineStarter(regions.directory / "fork.sock", directory)
        plain = starter.start(model, name="plain")
        with starter.running(plain):
            prompts = token_prompts()
            expected = [generate(plain.url, prompt, tokens=TOKENS) for prompt in prompts]
            yield Rig(regions, plain.url, prompts, expected)


def one_at_a_time(ask: Ask, prompts: list[list[int]]) -> list[Answer]:
    return [ask(prompt) for prompt in prompts]


def four_at_once(ask: Ask, prompts: list[list[int]]) -> list[Answer]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, prompts))


@pytest.mark.parametrize("manner", [one_at_a_time, four_at_once])
@pytest.mark.parametrize("stream", [False, True])
def test_tokens_equal_those_of_a_plain_server(
    rig: Rig, manner: Callable[[Ask, list[list[int]]], list[Answer]], stream: bool
) -> None:
    """The first of the four runs meets empty caches, the others repeat its prompts."""

    def ask(prompt: list[int]) -> Answer:
        return rig.regions.generate(prompt, tokens=TOKENS, stream=stream)

    answers = manner(ask, rig.prompts)
    for prompt, answer, expected in zip(rig.prompts, answers, rig.expected, strict=True):
        assert answer.status == 200, answer.body
        said = answer.events[-1] if stream else answer.json
        assert said["output_ids"] == expected, f"{len(prompt)} tokens, {answer.headers}"
        assert answer.route in {"offload", "local"}
        if len(prompt) <= THRESHOLD:
            assert answer.route == "local"
    if manner is one_at_a_time and not stream:
        routes = [answer.route for answer in answers]
        assert routes == ["offload" if len(p) > THRESHOLD else "local" for p in rig.prompts]


@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_openai_text_equals_that_of_a_plain_server(rig: Rig, text: str) -> None:
    body = {"model": rig.regions.model.name, "temperature": 0, "max_tokens": TOKENS}
    completion = body | {"prompt": text}
    assert (
        rig.regions.post("/v1/completions", completion).json["choices"][0]["text"]
        == post(f"{rig.plain_url}/v1/completions", completion)["choices"][0]["text"]
    )
    chat = body | {"messages": [{"role": "user", "content": text}]}
    expected = post(f"{rig.plain_url}/v1/chat/completions", chat)["choices"][0]["message"]
    assert (
        rig.regions.post("/v1/chat/completions", chat).json["choices"][0]["message"]["content"]
        == expected["content"]
    )
    stream = rig.regions.post("/v1/chat/completions", chat | {"stream": True})
    deltas = [event["choices"][0]["delta"] for event in stream.events if event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == expected["content"]


def test_a_long_prompts_cache_crosses_the_link_and_a_short_ones_does_not(rig: Rig) -> None:
    short, long = token_prompts(seed=7)[8], token_prompts(seed=7)[-1]
    offloaded, wan, payload = _measure(rig, long)
    assert offloaded.route == "offload"
    assert payload == sent_bytes(geometry(rig.regions.model), len(long)) + AUX_BYTES
    # Ethernet, IP, TCP and our headers, ACKs, the prompt itself and idle chatter come on top.
    assert payload < wan < payload * 1.15 + 60_000
    local, wan, payload = _measure(rig, short)
    assert local.route == "local"
    assert payload == 0
    assert wan < 20_000


def _measure(rig: Rig, prompt: list[int]) -> tuple[Answer, int, int]:
    """Return the answer, the bytes region b got over the WAN, the payload region a sent."""
    regions = rig.regions
    wan, sent = regions.wan_bytes(), regions.stats("a-prefill-0")
    answer = regions.generate(prompt, tokens=4)
    assert answer.status == 200, answer.body
    wan_after, sent_after = regions.wan_bytes(), regions.stats("a-prefill-0")
    key = "payload_bytes_sent_total"
    return answer, wan_after["rx_bytes"] - wan["rx_bytes"], sent_after[key] - sent[key]
