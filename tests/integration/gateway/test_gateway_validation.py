import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from etcd_server import EtcdServer
from fake_engine import Fault
from gateway_world import World
from tiny_tokenizer import make_tokenizer, words

from prfaas.errors import ConfigError
from prfaas.records import Role

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
GENERATE = "/generate"


async def assert_error(
    response: aiohttp.ClientResponse, status: int, code: str, *, says: str = ""
) -> None:
    answer = json.loads(await response.text())
    assert response.status == status, answer
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert answer["error"]["code"] == code
    assert says in answer["error"]["message"]
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (COMPLETIONS, {"prompt": ""}, "prompt: empty"),
        (COMPLETIONS, {"prompt": []}, "prompt: empty"),
        (COMPLETIONS, {"prompt": "   "}, "no tokens"),
        (COMPLETIONS, {}, "prompt"),
        (COMPLETIONS, {"prompt": 5}, "prompt: expected text or tokens, got 5"),
        (COMPLETIONS, {"prompt": ["w1", "w2"]}, "2 prompts; only one"),
        (COMPLETIONS, {"prompt": [[1], [2]]}, "2 prompts; only one"),
        (COMPLETIONS, {"prompt": [1, "w"]}, "token ids"),
        (COMPLETIONS, {"prompt": [1, True]}, "token ids"),
        (COMPLETIONS, {"prompt": [-1]}, "token ids are 0 to"),
        (COMPLETIONS, {"prompt": [1 << 40]}, "token ids are 0 to"),
        (COMPLETIONS, {"prompt": "\ud800"}, "Unicode"),
        (COMPLETIONS, {"prompt": "w1", "stream": "yes"}, "stream: expected bool"),
        (COMPLETIONS, {"prompt": "w1", "max_tokens": "5"}, "max_tokens: expected int"),
        (COMPLETIONS, {"prompt": "w1", "max_tokens": 0}, "max_tokens = 0"),
        (COMPLETIONS, {"prompt": "w1", "max_tokens": 1000}, "1 prompt tokens plus 1000 output"),
        (COMPLETIONS, {"prompt": words(990)}, "990 prompt tokens plus 16 output"),
        (COMPLETIONS, {"prompt": "w1", "n": 17}, "n = 17: 1 to 16"),
        (COMPLETIONS, {"prompt": "w1", "n": 0}, "n = 0: 1 to 16"),
        (COMPLETIONS, {"prompt": "w1", "n": 2, "seed": "x"}, "seed: expected int"),
        (COMPLETIONS, {"prompt": "w1", "best_of": 2}, "best_of: only 1 answer"),
        (COMPLETIONS, {"prompt": "w1", "model": 7}, "model: expected str"),
        (COMPLETIONS, {"prompt": "w1", "bootstrap_room": 7}, "set by the gateway"),
        (COMPLETIONS, {"prompt": "w1", "cache_salt": ["x"]}, "cache_salt: expected str"),
        (COMPLETIONS, {"prompt": "w1", "cache_salt": "\ud800"}, "cache_salt: not valid Unicode"),
        (COMPLETIONS, {"prompt": "w1", "extra_key": "\udfff"}, "extra_key: not valid Unicode"),
        (COMPLETIONS, {"prompt": "w1", "stream_options": 1}, "stream_options: expected dict"),
        (CHAT, {"messages": []}, "messages: empty"),
        (CHAT, {"messages": "hi"}, "messages: expected list"),
        (CHAT, {"messages": ["hi"]}, "each needs a role"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "content: expected text"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "only text content",
        ),
        (CHAT, {"messages": [{"role": "tool", "content": "w1"}]}, "no tools here"),
        (CHAT, {"messages": [{"role": "user", "content": words(1100)}]}, "more than the context"),
        (CHAT, {"messages": [{"role": "u", "content": "w"}], "max_tokens": 1000}, "plus 1000"),
        (GENERATE, {}, "exactly one of text and input_ids"),
        (GENERATE, {"text": "w1", "input_ids": [1]}, "exactly one of text and input_ids"),
        (GENERATE, {"text": ["w1"]}, "text: only one prompt"),
        (GENERATE, {"input_ids": [[1]]}, "one list of token ids"),
        (GENERATE, {"input_embeds": [[0.1]]}, "not supported"),
        (GENERATE, {"text": "w1", "sampling_params": {"n": 2}}, "n: only 1 answer"),
        (GENERATE, {"text": "w1", "sampling_params": [1]}, "sampling_params: expected dict"),
        (GENERATE, {"text": words(900)}, "plus 128 output"),
    ],
)
async def test_what_the_client_must_change_is_400(
    world: World, path: str, body: dict[str, Any], says: str
) -> None:
    async with world.http.post(path, data=json.dumps(body)) as response:
        await assert_error(response, 400, "invalid_request", says=says)
        assert response.headers["x-prfaas-reason"] == "invalid_request"
    assert not world.decode_b.requests


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"5", b"\xff\xfe", b"[" * 100_000, b'{"prompt": "w1"} x']
)
async def test_a_body_that_is_no_json_object_is_400(world: World, raw: bytes) -> None:
    async with world.http.post(COMPLETIONS, data=raw) as response:
        await assert_error(response, 400, "invalid_request", says="JSON")


async def test_the_longest_possible_request_is_served(world: World) -> None:
    response, _ = await world.complete(words(996), max_tokens=4)
    assert response.status == 200


async def test_an_unknown_model_is_404(world: World) -> None:
    async with world.http.post(COMPLETIONS, json={"prompt": "w1", "model": "huge"}) as response:
        await assert_error(response, 404, "model_not_found", says="there is: tiny")


async def test_a_model_must_be_named_where_there_are_two(world: World) -> None:
    await world.add_engine(Role.DECODE, "b", "b-decode-1", model_id="other")
    await world.until_fleet(lambda fleet: "b-decode-1" in str(fleet["nodes"]))
    async with world.http.post(COMPLETIONS, json={"prompt": "w1"}) as response:
        await assert_error(response, 400, "invalid_request", says="one of: other, tiny")
    async with world.http.post(COMPLETIONS, json={"prompt": "w1", "model": "other"}) as response:
        await assert_error(response, 503, "no_prefill")
        assert response.headers["Retry-After"] == "1"


async def test_a_body_too_large_is_413(world: World) -> None:
    await world.start_gateway(max_body_bytes=2000)
    async with world.http.post(COMPLETIONS, json={"prompt": words(900)}) as response:
        await assert_error(response, 413, "body_too_large", says="2000 bytes")


async def test_unknown_paths_and_methods_have_the_same_form(world: World) -> None:
    async with world.http.get("/v1/nothing") as response:
        await assert_error(response, 404, "not_found")
    async with world.http.get(COMPLETIONS) as response:
        await assert_error(response, 405, "method_not_allowed")
        assert response.headers["Allow"] == "POST"


async def test_too_many_at_once_is_503_and_the_others_are_served(world: World) -> None:
    await world.start_gateway(max_concurrent_requests=2)
    world.decode_b.faults = [Fault.SLOW_STREAM] * 2
    body = {"prompt": "w1", "stream": True, "max_tokens": 4}

    async def stream() -> str:
        async with world.http.post(COMPLETIONS, json=body) as response:
            return await response.text()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stream()) for _ in range(2)]
        await world.until_fleet(lambda fleet: fleet["active_requests"] == 2)
        async with world.http.post(COMPLETIONS, json=body) as response:
            await assert_error(response, 503, "overloaded")
            assert response.headers["Retry-After"] == "1"
    assert all("[DONE]" in task.result() for task in tasks)
    response, _ = await world.complete("w1")
    assert response.status == 200


async def test_no_nodes_is_503_with_retry_after_and_ready_says_why(
    shared_etcd: EtcdServer, model_path: Path
) -> None:
    async with World(shared_etcd.endpoint, str(model_path), deployment="empty") as world:
        await world.start_gateway()
        async with world.http.post(COMPLETIONS, json={"prompt": "w1"}) as response:
            await assert_error(response, 503, "no_decode")
            assert response.headers["Retry-After"] == "1"
        async with world.http.get("/ready") as response:
            assert response.status == 503
            missing = (await response.json())["missing"]
            assert missing == ["no decode node in region b", "no prefill node"]
        async with world.http.get("/health") as response:
            assert response.status == 200
        async with world.http.get("/v1/models") as response:
            assert (await response.json())["data"] == []


async def test_a_decode_in_another_region_does_not_count(
    shared_etcd: EtcdServer, model_path: Path
) -> None:
    async with World(shared_etcd.endpoint, str(model_path), deployment="far") as world:
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0")
        await world.add_engine(Role.DECODE, "a", "a-decode-0")
        await world.start_gateway()
        async with world.http.post(COMPLETIONS, json={"prompt": "w1"}) as response:
            await assert_error(response, 503, "no_decode")


async def test_a_model_without_chat_template_says_so(
    shared_etcd: EtcdServer, tmp_path: Path
) -> None:
    model_path = make_tokenizer(tmp_path / "plain", chat=False)
    async with World(shared_etcd.endpoint, str(model_path), deployment="plain") as world:
        await world.start_engines()
        await world.start_gateway()
        body = {"messages": [{"role": "user", "content": "w1"}]}
        async with world.http.post(CHAT, json=body) as response:
            await assert_error(response, 400, "invalid_request", says="no chat template")


async def test_a_missing_tokenizer_stops_the_start(shared_etcd: EtcdServer) -> None:
    async with World(shared_etcd.endpoint, "/nonexistent", deployment="none") as world:
        with pytest.raises(ConfigError, match=r"gateway\.model_path: /nonexistent/tokenizer"):
            await world.start_gateway()


async def test_without_a_configured_path_the_nodes_tokenizer_is_used(
    shared_etcd: EtcdServer, model_path: Path
) -> None:
    async with World(shared_etcd.endpoint, "", deployment="nodes-path") as world:
        for role, name in ((Role.PREFILL, "b-prefill-0"), (Role.DECODE, "b-decode-0")):
            await world.add_engine(role, "b", name, model_path=str(model_path))
        await world.start_gateway()
        response, _ = await world.complete(words(5))
        assert response.headers["x-prfaas-prompt-tokens"] == "5"
