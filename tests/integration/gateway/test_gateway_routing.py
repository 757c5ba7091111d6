import json

import aiohttp
from fake_engine import expected_words
from gateway_world import World
from tiny_tokenizer import words

from prfaas.records import Role
from prfaas_coord import read_policy


def route_of(response: aiohttp.ClientResponse) -> tuple[str, str, str]:
    headers = response.headers
    return (
        headers["x-prfaas-route"],
        headers["x-prfaas-reason"],
        headers.get("x-prfaas-prefill", ""),
    )


async def test_the_threshold_decides_the_region_of_the_prefill(world: World) -> None:
    short, long = words(100), words(101, first=500)
    response, answer = await world.complete(short)
    assert response.status == 200
    assert route_of(response) == ("local", "below_threshold", "b-prefill-0")
    assert answer["choices"][0]["text"] == " ".join(expected_words(short, 4))
    response, answer = await world.complete(long)
    assert route_of(response) == ("offload", "above_threshold", "a-prefill-0")
    assert response.headers["x-prfaas-prompt-tokens"] == "101"
    assert response.headers["x-prfaas-prefix-tokens"] == "0"
    assert answer["choices"][0]["text"] == " ".join(expected_words(long, 4))
    assert len(world.decode_b.requests) == 2


async def test_both_legs_share_room_and_rid_and_meet_at_the_prefill(world: World) -> None:
    await world.complete(words(10), temperature=0.5, stop=["x"])
    prefill, decode = world.prefill_b.requests[0], world.decode_b.requests[0]
    assert prefill == decode
    assert prefill["bootstrap_host"] == "127.0.0.1"
    assert prefill["bootstrap_port"] == 4321
    assert 0 <= prefill["bootstrap_room"] < 1 << 63
    assert (prefill["temperature"], prefill["stop"]) == (0.5, ["x"])
    await world.complete(words(10))
    rooms = {request["bootstrap_room"] for request in world.decode_b.requests}
    assert len(rooms) == 2


async def test_streams_pass_through_unchanged(world: World) -> None:
    body = {"prompt": words(10), "max_tokens": 6, "stream": True}
    body["stream_options"] = {"include_usage": True}
    async with world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
        assert response.content_type == "text/event-stream"
        assert route_of(response) == ("local", "below_threshold", "b-prefill-0")
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    said = [json.loads(event)["choices"][0]["text"].strip() for event in events[:-1]]
    assert said == expected_words(words(10), 6)
    assert world.decode_b.requests[0]["stream_options"] == {"include_usage": True}
    assert "stream_options" not in world.prefill_b.requests[0]
    assert world.prefill_b.requests[0]["stream"] is False
    assert 'prfaas_ttft_seconds_count{route="local"} 1.0' in await world.metrics()


async def test_chat_and_generate_are_routed_too(world: World) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": words(120)}]}]
    async with world.http.post("/v1/chat/completions", json={"messages": messages}) as response:
        assert response.status == 200
        assert route_of(response)[0] == "offload"
        # <s> user, 120 words, assistant
        assert response.headers["x-prfaas-prompt-tokens"] == "123"
    assert world.decode_b.requests[0]["messages"] == messages
    body = {"text": words(5), "sampling_params": {"max_new_tokens": 3}}
    async with world.http.post("/generate", json=body) as response:
        assert (await response.json())["text"] == " ".join(expected_words(words(5), 3))
    tokens = {"input_ids": list(range(150)), "sampling_params": {"max_new_tokens": 3}}
    async with world.http.post("/generate", json=tokens) as response:
        assert route_of(response)[0] == "offload"
        assert (await response.json())["text"] == " ".join(expected_words(list(range(150)), 3))


async def test_token_prompts_and_a_list_of_one(world: World) -> None:
    response, answer = await world.complete([1, 2, 3])
    assert response.headers["x-prfaas-prompt-tokens"] == "3"
    assert answer["choices"][0]["text"] == " ".join(expected_words([1, 2, 3], 4))
    response, answer = await world.complete([words(7)])
    assert response.headers["x-prfaas-prompt-tokens"] == "7"
    assert answer["choices"][0]["text"] == " ".join(expected_words(words(7), 4))


async def test_a_known_prefix_at_the_local_prefill_lowers_the_uncached_length(
    world: World,
) -> None:
    await world.complete(words(90))
    response, _ = await world.complete(words(150))
    assert response.headers["x-prfaas-prefix-tokens"] == "64"
    assert route_of(response) == ("local", "below_threshold", "b-prefill-0")
    salted, _ = await world.complete(words(150), cache_salt="other")
    assert route_of(salted)[0] == "offload"
    assert (await world.node("b-prefill-0"))["index_blocks"] > 0


async def test_a_new_session_of_a_node_forgets_its_prefixes(world: World) -> None:
    await world.complete(words(90))
    world.prefill_b.session = "s2"
    world.registrations["b-prefill-0"].update(world.prefill_b.record())
    await world.until(lambda: world.node("b-prefill-0"), lambda node: node["session"] == "s2")
    response, _ = await world.complete(words(150))
    assert route_of(response)[0] == "offload"


async def test_without_a_remote_prefill_long_prompts_stay_local(world: World) -> None:
    await world.registrations["a-prefill-0"].__aexit__(None, None, None)
    await world.until_fleet(lambda fleet: "a-prefill-0" not in str(fleet["nodes"]))
    response, _ = await world.complete(words(200))
    assert route_of(response) == ("local", "no_remote_prefill", "b-prefill-0")


async def test_without_a_local_prefill_short_prompts_are_offloaded(world: World) -> None:
    await world.registrations["b-prefill-0"].__aexit__(None, None, None)
    await world.until_fleet(lambda fleet: "b-prefill-0" not in str(fleet["nodes"]))
    response, _ = await world.complete(words(5))
    assert route_of(response) == ("offload", "no_local_prefill", "a-prefill-0")


async def test_the_policy_in_etcd_moves_the_threshold(world: World) -> None:
    async with world.http.get("/admin/v1/policy") as response:
        policy = await response.json()
    assert policy == {
        "threshold_tokens": 100,
        "version": 0,
        "tenants": {},
        "source": "config",
    }
    async with world.http.put("/admin/v1/policy", json={"threshold_tokens": 5}) as response:
        assert response.status == 200
        policy = await response.json()
    assert policy == {"threshold_tokens": 5, "version": 1, "tenants": {}, "source": "etcd"}
    stored = await read_policy(world.etcd, world.deployment)
    assert stored is not None
    assert stored.threshold_tokens == 5
    routed, _ = await world.complete(words(6))
    assert route_of(routed)[0] == "offload"
    for bad in ({}, {"threshold_tokens": -1}, {"threshold_tokens": True}, {"t": 1}, []):
        async with world.http.put("/admin/v1/policy", json=bad) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "invalid_request"


async def test_models_and_health_and_ready(world: World) -> None:
    await world.add_engine(Role.DECODE, "b", "b-decode-1", model_id="org/other", started_at_s=7.0)
    await world.until_fleet(lambda fleet: "b-decode-1" in str(fleet["nodes"]))
    async with world.http.get("/v1/models") as response:
        models = (await response.json())["data"]
    assert [(m["id"], m["created"], m["max_model_len"]) for m in models] == [
        ("org/other", 7, 1000),
        ("tiny", 100, 1000),
    ]
    for model in models:
        async with world.http.get(f"/v1/models/{model['id']}") as response:
            assert (response.status, await response.json()) == (200, model)
    async with world.http.get("/v1/models/none") as response:
        assert response.status == 404
        error = (await response.json())["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "model_not_found")
        assert "'none'" in error["message"]
    async with world.http.get("/health") as response:
        assert response.status == 200
    async with world.http.get("/ready") as response:
        assert (response.status, (await response.json())["ready"]) == (200, True)


async def test_metrics_have_the_words_of_the_headers(world: World) -> None:
    await world.complete(words(5))
    await world.complete(words(150))
    await world.complete("")
    text = await world.metrics()
    for line in (
        'prfaas_requests_total{code="200",reason="below_threshold",route="local"} 1.0',
        'prfaas_requests_total{code="200",reason="above_threshold",route="offload"} 1.0',
        'prfaas_requests_total{code="400",reason="invalid_request",route="none"} 1.0',
        'prfaas_attempts_total{outcome="answered",route="offload"} 1.0',
        'prfaas_nodes{region="a",role="prefill"} 1.0',
        "prfaas_etcd_stale 0.0",
        "prfaas_threshold_tokens 100.0",
        "prfaas_in_flight_requests 0.0",
    ):
        assert line in text


async def test_request_ids_are_kept_or_made(world: World) -> None:
    body = {"prompt": words(3)}
    headers = {"x-request-id": "mine-1"}
    async with world.http.post("/v1/completions", json=body, headers=headers) as response:
        assert response.headers["x-request-id"] == "mine-1"
    assert world.decode_b.requests[0]["rid"].startswith("mine-1.")
    async with world.http.post(
        "/v1/completions", json=body, headers={"x-request-id": "not good"}
    ) as response:
        assert len(response.headers["x-request-id"]) == 32
