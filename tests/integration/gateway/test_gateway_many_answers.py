"""`n`: several answers to one prompt, whole and streamed."""

import json
from typing import Any

import openai
import pytest
from fake_engine import Fault, expected_words
from gateway_world import World
from test_openai_client import client_of
from tiny_tokenizer import words

from prfaas.records import Role

COMPLETIONS = "/v1/completions"


async def test_several_answers_are_one_answer(world: World) -> None:
    prompt = words(6)
    async with client_of(world.url) as client:
        whole = await client.completions.create(
            model="tiny", prompt=prompt, max_tokens=3, n=3, seed=40
        )
        assert [choice.index for choice in whole.choices] == [0, 1, 2]
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 9
        texts: dict[int, str] = {}
        async for chunk in await client.completions.create(
            model="tiny", prompt=prompt, max_tokens=3, n=2, stream=True
        ):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
    expected = " ".join(expected_words(prompt, 3)) + " "
    assert texts == {0: expected, 1: expected}
    for engine in (world.prefill_b, world.decode_b):
        seeds = sorted(body.get("seed", -1) for body in engine.requests)
        assert seeds == [-1, -1, 40, 41, 42]
        assert all("n" not in body for body in engine.requests)
        assert len({body["bootstrap_room"] for body in engine.requests}) == 5


async def test_a_stream_of_several_ends_once(world: World) -> None:
    body = {"prompt": words(4), "max_tokens": 3, "n": 4, "stream": True}
    async with world.http.post(COMPLETIONS, json=body) as response:
        text = await response.text()
    assert text.count("[DONE]") == 1
    assert text.endswith("data: [DONE]\n\n")
    assert text.count("data: {") == 12


async def failed(world: World, body: dict[str, Any]) -> tuple[int, str]:
    async with world.http.post(COMPLETIONS, json=body) as response:
        return response.status, await response.text()


async def test_an_answer_that_fails_fails_them_all_and_leaves_nothing(world: World) -> None:
    body = {"prompt": words(4), "max_tokens": 4, "n": 3}
    world.decode_b.faults = [Fault.HTTP_400]
    assert (await failed(world, body))[0] == 400
    world.decode_b.faults = []
    streamed = {**body, "stream": True}
    world.decode_b.faults = [Fault.SLOW_STREAM, Fault.MID_STREAM_RESET, Fault.SLOW_STREAM]
    status, text = await failed(world, streamed)
    assert status == 200
    last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
    assert last["error"]["code"] == "decode_lost"
    await world.until_fleet(lambda fleet: fleet["active_requests"] == 0)
    await world.until_fleet(lambda fleet: not any(n["in_flight"] for n in fleet["nodes"]))


@pytest.mark.parametrize("sick", [0, 1])
async def test_a_node_that_breaks_one_of_the_answers_is_left_alone_for_a_moment(
    world: World, sick: int
) -> None:
    """Whichever it is: the first answer's, or that of another."""
    nodes = [world.decode_b, await world.add_engine(Role.DECODE, "b", "b-decode-1")]
    await world.until_fleet(lambda fleet: len(fleet["nodes"]) == 5)
    nodes[sick].faults = [Fault.MID_STREAM_RESET] * 4
    nodes[1 - sick].faults = [Fault.SLOW_STREAM] * 4
    body = {"prompt": words(4), "max_tokens": 30, "n": 4, "stream": True}
    status, text = await failed(world, body)
    assert status == 200
    assert f"decode node b-decode-{sick} went away" in text
    assert (await world.node(f"b-decode-{sick}"))["quarantined_s"] > 0
    assert (await world.node(f"b-decode-{1 - sick}"))["quarantined_s"] == 0
    assert 'prfaas_broken_streams_total{reason="decode_lost"} 1.0' in await world.metrics()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_plan_knows_how_long_answers_were_together(world: World, stream: bool) -> None:
    body = {"prompt": words(4), "max_tokens": 3, "n": 2, "stream": stream}
    async with world.http.post(COMPLETIONS, json=body) as response:
        await response.read()
    async with world.http.get("/admin/v1/plan") as response:
        found = await response.json()
    assert found["demand"]["output_tokens"] == 6


async def test_a_client_that_leaves_ends_them_all(world: World) -> None:
    world.decode_b.faults = [Fault.SLOW_STREAM] * 3
    body = {"prompt": words(4), "max_tokens": 200, "n": 3, "stream": True}
    async with world.http.post(COMPLETIONS, json=body) as response:
        await response.content.readany()
    await world.until(lambda: len(world.decode_b.cancelled) == 3)
    await world.until_fleet(lambda fleet: fleet["active_requests"] == 0)


async def test_too_many_are_refused(world: World) -> None:
    async with client_of(world.url) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.completions.create(model="tiny", prompt="w1", n=17)
    assert refused.value.param == "n"
