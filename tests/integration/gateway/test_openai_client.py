"""OpenAI's own Python client, unmodified, at a gateway before twins and before fake engines."""

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from etcd_server import EtcdServer
from gateway_world import World
from test_gateway_twins import Site, site  # noqa: F401 - a fixture
from tiny_tokenizer import words

from prfaas.api_keys import KeyEntry, key_digest, render_keys
from prfaas.api_section import ApiSection

HI = {"role": "user", "content": "hello there " * 20}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"x": {}}}},
}


def client_of(url: str, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture
async def twins(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:  # noqa: F811
    async with client_of(str(site.http._base_url).rstrip("/")) as client:
        yield client


async def test_models_are_listed_and_found(twins: openai.AsyncOpenAI) -> None:
    (model,) = [model async for model in twins.models.list()]
    assert (await twins.models.retrieve(model.id)).id == model.id
    with pytest.raises(openai.NotFoundError) as caught:
        await twins.models.retrieve("huge")
    assert caught.value.code == "model_not_found"


async def test_chats_and_completions_whole_and_streamed(twins: openai.AsyncOpenAI) -> None:
    model = (await twins.models.list()).data[0].id
    whole = await twins.chat.completions.create(model=model, messages=[HI], max_tokens=6)  # type: ignore[list-item]
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 6
    stream = await twins.chat.completions.create(
        model=model,
        messages=[HI],  # type: ignore[list-item]
        max_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage, finish = "", None, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason == "length"
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, 6)
    plain = await twins.completions.create(model=model, prompt="hello there", max_tokens=5)
    assert plain.usage is not None
    pieces = [
        chunk.choices[0].text
        async for chunk in await twins.completions.create(
            model=model, prompt="hello there", max_tokens=5, stream=True
        )
        if chunk.choices
    ]
    assert "".join(pieces) == plain.choices[0].text


async def test_what_clients_send_reaches_the_engines_unchanged(world: World) -> None:
    sent = {
        "tools": [TOOL],
        "tool_choice": "auto",
        "logprobs": True,
        "top_logprobs": 3,
        "stop": ["END", "\n"],
        "response_format": SCHEMA,
        "seed": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "parallel_tool_calls": False,
        "user": "someone",
    }
    async with client_of(world.url) as client:
        await client.chat.completions.create(  # type: ignore[call-overload]
            model="tiny", messages=[{"role": "user", "content": "w1"}], max_tokens=2, n=1, **sent
        )
    for engine in (world.prefill_b, world.decode_b):
        (seen,) = engine.requests
        assert {name: seen[name] for name in sent} == sent


async def test_errors_are_the_clients_own_exceptions(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    entry = KeyEntry(key_digest("pfs-a"), requests_per_s=0.001)
    other = KeyEntry(key_digest("pfs-b"))
    file.write_text(render_keys({"a": entry, "b": other}))
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        await world.start_gateway(api=ApiSection(keys_file=str(file)), wait=False)

        async def ask(key: str, prompt: str = "w1", model: str = "tiny") -> None:
            async with client_of(world.url, key) as client:
                await client.completions.create(model=model, prompt=prompt, max_tokens=2)

        async def served() -> bool:
            try:
                await ask("pfs-b")
            except openai.APIStatusError:
                return False
            return True

        await world.until(served)
        with pytest.raises(openai.AuthenticationError) as denied:
            await ask("pfs-x")
        assert denied.value.code == "invalid_api_key"
        with pytest.raises(openai.BadRequestError) as wrong:
            await ask("pfs-b", prompt="")
        assert wrong.value.param == "prompt"
        with pytest.raises(openai.BadRequestError, match="context"):
            await ask("pfs-b", prompt=words(1200))
        with pytest.raises(openai.NotFoundError):
            await ask("pfs-b", model="huge")
        await ask("pfs-a")
        with pytest.raises(openai.RateLimitError) as limited:
            await ask("pfs-a")
        assert int(limited.value.response.headers["retry-after"]) > 100
        async with client_of(world.url, "pfs-b") as client:
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await client.get("/../admin/v1/fleet", cast_to=object)
        assert json.loads(refused.value.response.text)["error"]["code"] == "not_allowed"
