import asyncio
import json
from typing import Any

import pytest
from fake_engine import Fault, expected_words
from gateway_world import World
from tiny_tokenizer import words

from prfaas.records import Role
from prfaas_gateway import leg

LONG = words(150)


def answer_of(text: str) -> str:
    """Return the words of a stream."""
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    choices = [json.loads(event)["choices"][0] for event in events if event != "[DONE]"]
    return " ".join(choice["text"].strip() for choice in choices)


async def assert_no_legs_left(world: World) -> None:
    await world.until_fleet(lambda fleet: all(not node["in_flight"] for node in fleet["nodes"]))
    assert (await world.fleet())["active_requests"] == 0


async def assert_fallback(world: World, *, stream: bool = False) -> None:
    """Send a long prompt; it must be answered right by the local path."""
    body: dict[str, Any] = {"prompt": LONG, "max_tokens": 4, "stream": stream}
    async with asyncio.timeout(5), world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
    assert response.status == 200, text
    assert response.headers["x-prfaas-route"] == "fallback"
    assert response.headers["x-prfaas-reason"] == "offload_failed"
    assert response.headers["x-prfaas-prefill"] == "b-prefill-0"
    got = answer_of(text) if stream else json.loads(text)["choices"][0]["text"]
    assert got == " ".join(expected_words(LONG, 4))
    rooms = [request["bootstrap_room"] for request in world.decode_b.requests]
    assert len(set(rooms)) == len(rooms)
    await assert_no_legs_left(world)


async def test_an_answer_without_end_fills_no_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leg, "MAX_ANSWER_BYTES", 40)
    response, answer = await world.complete("w1 w2")
    assert response.status == 502
    assert answer["error"]["code"] == "offload_failed"  # tried at home first, then away
    assert "an answer of more than 40 bytes" in answer["error"]["message"]
    await assert_no_legs_left(world)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fault",
    [Fault.RESET, Fault.DIE_AFTER_MEETING, Fault.HTTP_500, Fault.HTTP_503, Fault.ABORTED],
)
async def test_a_failing_remote_prefill_is_a_fallback(
    world: World, fault: Fault, stream: bool
) -> None:
    world.prefill_a.faults = [fault]
    await assert_fallback(world, stream=stream)
    # The decode leg of the lost attempt, which waits for its KV cache, was cut and told.
    if len(world.decode_b.requests) == 2:
        lost = world.decode_b.requests[0]["rid"]
        await world.until(lambda: lost in world.decode_b.cancelled)
        await world.until(lambda: lost in world.decode_b.abort_requests)
    metrics = await world.metrics()
    assert 'prfaas_fallbacks_total{kind="' in metrics
    assert 'leg="prefill"} 1.0' in metrics


@pytest.mark.parametrize(
    ("fault", "stream"),
    [
        (Fault.HTTP_500, False),
        (Fault.HTTP_500, True),
        (Fault.ABORTED, False),
        (Fault.ABORTED, True),
        (Fault.SSE_ERROR, True),
    ],
)
async def test_a_failing_decode_leg_of_an_offload_is_a_fallback(
    world: World, fault: Fault, stream: bool
) -> None:
    world.decode_b.faults = [fault]
    await assert_fallback(world, stream=stream)
    lost = world.prefill_a.requests[0]["rid"]
    await world.until(lambda: lost in world.prefill_a.abort_requests)


async def test_a_dead_remote_prefill_is_a_fallback_once_then_avoided(world: World) -> None:
    await world.prefill_a.stop()
    await assert_fallback(world)
    assert (await world.node("a-prefill-0"))["quarantined_s"] > 0
    response, _ = await world.complete(words(150, first=700))
    assert response.headers["x-prfaas-reason"] == "no_remote_prefill"


async def test_a_quarantined_node_is_used_again_with_a_new_session(world: World) -> None:
    await world.prefill_a.stop()
    await assert_fallback(world)
    await world.prefill_a.start()
    world.prefill_a.session = "s2"
    world.registrations["a-prefill-0"].update(world.prefill_a.record())
    await world.until(lambda: world.node("a-prefill-0"), lambda node: node["session"] == "s2")
    response, _ = await world.complete(words(150, first=700))
    assert response.headers["x-prfaas-route"] == "offload"


async def test_a_hanging_remote_prefill_leaves_time_to_fall_back(world: World) -> None:
    await world.start_gateway(request_timeout_s=2.0)
    world.prefill_a.faults = [Fault.HANG]
    await assert_fallback(world)
    await world.until(lambda: len(world.prefill_a.cancelled) == 1)


async def test_a_remote_prefill_that_hangs_though_it_was_quick_is_given_up_soon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prfaas.routing.pace._LEAST_BUSY_S", 0.0)
    monkeypatch.setattr("prfaas.routing.patience.LEAST_S", 0.5)
    response, _ = await world.complete(words(500, first=7))
    assert response.headers["x-prfaas-route"] == "offload"
    world.prefill_a.faults = [Fault.HANG]
    await assert_fallback(world)  # within seconds: half the time that it has is minutes


async def test_a_prefill_failure_after_the_first_token_is_ignored(world: World) -> None:
    world.prefill_a.faults = [Fault.FAIL_AFTER_DECODE]
    world.decode_b.faults = [Fault.SLOW_STREAM]
    body = {"prompt": LONG, "max_tokens": 4, "stream": True}
    async with world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
    assert response.headers["x-prfaas-route"] == "offload"
    assert answer_of(text) == " ".join(expected_words(LONG, 4))
    assert len(world.decode_b.requests) == 1


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
async def test_a_client_error_of_an_engine_is_returned_and_not_retried(
    world: World, role: Role
) -> None:
    engine = world.prefill_a if role is Role.PREFILL else world.decode_b
    engine.faults = [Fault.HTTP_400]
    response, answer = await world.complete(LONG)
    assert response.status == 400
    assert answer["message"] == "the engine does not like this"
    assert response.headers["x-prfaas-route"] == "offload"
    assert len(world.prefill_b.requests) == 0
    await assert_no_legs_left(world)


@pytest.mark.parametrize(
    ("role", "fault", "stream"),
    [
        (Role.PREFILL, Fault.HTTP_500, False),
        (Role.PREFILL, Fault.ABORTED, True),
        (Role.DECODE, Fault.HTTP_500, False),
        (Role.DECODE, Fault.ABORTED, False),
        (Role.DECODE, Fault.SSE_ERROR, True),
    ],
)
async def test_an_engine_error_on_the_local_path_is_retried_on_the_remote_prefill(
    world: World, role: Role, fault: Fault, stream: bool
) -> None:
    engine = world.prefill_b if role is Role.PREFILL else world.decode_b
    engine.faults = [fault]
    body = {"prompt": words(5), "max_tokens": 4, "stream": stream}
    async with asyncio.timeout(5), world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
    assert response.status == 200, text
    assert response.headers["x-prfaas-prefill"] == "a-prefill-0"
    assert response.headers["x-prfaas-route"] == "offload"
    assert response.headers["x-prfaas-reason"] == "local_failed"
    got = answer_of(text) if stream else json.loads(text)["choices"][0]["text"]
    assert got == " ".join(expected_words(words(5), 4))
    await assert_no_legs_left(world)


async def test_an_engine_error_everywhere_is_502_after_each_prefill_was_asked_once(
    world: World,
) -> None:
    world.prefill_b.faults = [Fault.HTTP_500] * 3
    world.prefill_a.faults = [Fault.HTTP_500] * 3
    response, answer = await world.complete(words(5))
    assert response.status == 502
    assert response.headers["Retry-After"] == "1"
    assert "the engine is broken" in answer["error"]["message"]
    assert (len(world.prefill_b.requests), len(world.prefill_a.requests)) == (1, 1)
    await assert_no_legs_left(world)


async def test_a_client_error_on_the_local_path_is_not_retried(world: World) -> None:
    world.prefill_b.faults = [Fault.HTTP_400]
    response, _ = await world.complete(words(5))
    assert response.status == 400
    assert world.prefill_a.requests == []


async def test_a_full_queue_on_the_local_path_is_503_and_no_quarantine(world: World) -> None:
    world.decode_b.faults = [Fault.HTTP_503]
    response, answer = await world.complete(words(5))
    assert response.status == 503
    assert response.headers["Retry-After"] == "1"
    assert answer["error"]["code"] == "overloaded"
    assert (await world.node("b-decode-0"))["quarantined_s"] == 0
    assert world.prefill_a.requests == []


async def test_an_offload_whose_fallback_fails_too_is_502(world: World) -> None:
    world.prefill_a.faults = [Fault.HTTP_500]
    world.prefill_b.faults = [Fault.HTTP_500]
    response, answer = await world.complete(LONG)
    assert response.status == 502
    assert answer["error"]["code"] == "local_failed"
    assert response.headers["x-prfaas-route"] == "fallback"


async def test_a_dead_decode_is_replaced_by_another(world: World) -> None:
    second = await world.add_engine(Role.DECODE, "b", "b-decode-1")
    await world.until_fleet(lambda fleet: "b-decode-1" in str(fleet["nodes"]))
    await world.decode_b.stop()
    response, answer = await world.complete(words(5))
    assert response.status == 200
    assert response.headers["x-prfaas-reason"] == "local_failed"
    assert answer["choices"][0]["text"] == " ".join(expected_words(words(5), 4))
    assert len(second.requests) == 1
    # Now it is known to be dead, and is left alone.
    response, _ = await world.complete(words(6))
    assert response.headers["x-prfaas-reason"] == "below_threshold"


async def test_the_only_decode_dead_is_502_with_retry_after(world: World) -> None:
    await world.decode_b.stop()
    for prompt in (words(5), LONG, words(5)):
        response, answer = await world.complete(prompt)
        assert response.status == 502
        assert response.headers["Retry-After"] == "1"
        assert answer["error"]["type"] == "upstream_error"
    await world.decode_b.start()
    response, _ = await world.complete(words(5))
    assert response.status == 200
    await assert_no_legs_left(world)


async def test_a_dead_local_prefill_is_replaced_by_the_remote_one(world: World) -> None:
    await world.prefill_b.stop()
    response, _ = await world.complete(words(5))
    assert response.status == 200
    assert response.headers["x-prfaas-route"] == "offload"
    assert response.headers["x-prfaas-reason"] == "local_failed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_closes_both_legs(world: World, stream: bool) -> None:
    world.prefill_a.faults = [Fault.HANG]
    body = {"prompt": LONG, "stream": stream}
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.3), world.http.post("/v1/completions", json=body):
            pass
    for engine in (world.prefill_a, world.decode_b):
        await world.until(lambda engine=engine: len(engine.cancelled) == 1)
        await world.until(lambda engine=engine: len(engine.abort_requests) == 1)
    await assert_no_legs_left(world)
    assert 'code="499",reason="client_gone",route="offload"} 1.0' in await world.metrics()


async def test_a_client_that_leaves_a_stream_closes_the_decode_leg(world: World) -> None:
    world.decode_b.faults = [Fault.SLOW_STREAM]
    body = {"prompt": LONG, "max_tokens": 100, "stream": True}
    async with world.http.post("/v1/completions", json=body) as response:
        await response.content.readany()
        response.close()
    await world.until(lambda: len(world.decode_b.cancelled) == 1)
    await assert_no_legs_left(world)


async def test_a_decode_that_dies_in_mid_stream_ends_the_stream_with_an_error(
    world: World,
) -> None:
    world.decode_b.faults = [Fault.MID_STREAM_RESET]
    body = {"prompt": LONG, "max_tokens": 10, "stream": True}
    async with world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
    assert response.status == 200
    last = [line for line in text.split("\n\n") if line][-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["type"] == "upstream_error"
    assert "b-decode-0" in error["message"]
    assert "[DONE]" not in text
    assert 'prfaas_broken_streams_total{reason="decode_lost"} 1.0' in await world.metrics()
    await assert_no_legs_left(world)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_deadline_is_one_for_both_legs(world: World, stream: bool) -> None:
    await world.start_gateway(request_timeout_s=0.5)
    world.decode_b.faults = [Fault.HANG]
    started = asyncio.get_running_loop().time()
    response, answer = await world.complete(words(5), stream=stream)
    assert asyncio.get_running_loop().time() - started < 2
    assert response.status == 504
    assert answer["error"]["code"] == "deadline_exceeded"
    assert response.headers["x-prfaas-reason"] == "deadline_exceeded"
    await world.until(lambda: len(world.decode_b.cancelled) == 1)
    await world.until(lambda: len(world.prefill_b.cancelled) == 1)
    await assert_no_legs_left(world)


async def test_the_deadline_ends_a_stream_with_an_error_event(world: World) -> None:
    await world.start_gateway(request_timeout_s=0.6)
    world.decode_b.faults = [Fault.SLOW_STREAM]
    body = {"prompt": words(5), "max_tokens": 100, "stream": True}
    async with asyncio.timeout(3), world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
    last = [line for line in text.split("\n\n") if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
    await assert_no_legs_left(world)


async def test_many_requests_at_once_with_a_failing_prefill_all_get_the_right_answer(
    world: World,
) -> None:
    world.prefill_a.faults = [Fault.DIE_AFTER_MEETING, Fault.HTTP_500] * 8

    async def one(index: int) -> None:
        prompt = words(140 + index, first=index * 50)
        response, answer = await world.complete(prompt)
        assert response.status == 200, answer
        assert answer["choices"][0]["text"] == " ".join(expected_words(prompt, 4))

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for index in range(32):
            group.create_task(one(index))
    await assert_no_legs_left(world)


async def test_requests_spread_over_equal_nodes(world: World) -> None:
    await world.add_engine(Role.PREFILL, "b", "b-prefill-1")
    await world.until_fleet(lambda fleet: "b-prefill-1" in str(fleet["nodes"]))
    world.decode_b.faults = [Fault.SLOW_STREAM] * 4

    async def one(index: int) -> str:
        body = {"prompt": words(5, first=index * 10), "stream": True}
        async with world.http.post("/v1/completions", json=body) as response:
            await response.read()
            return response.headers["x-prfaas-prefill"]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(index)) for index in range(4)]
    assert sorted({task.result() for task in tasks}) == ["b-prefill-0", "b-prefill-1"]


async def test_a_leg_to_a_wrong_address_is_a_failure_not_a_crash(world: World) -> None:
    world.registrations["a-prefill-0"].update(world.prefill_a.record(url="nonsense"))
    await world.until(lambda: world.node("a-prefill-0"), lambda node: node["url"] == "nonsense")
    await assert_fallback(world)
