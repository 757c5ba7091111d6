"""/tokenize and /detokenize at the gateway."""

import json
from typing import Any

import pytest
from gateway_world import World
from tiny_tokenizer import words


async def ask(world: World, path: str, body: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with world.http.post(path, data=data) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_texts_and_tokens_and_back(world: World, prefix: str) -> None:
    status, answer = await ask(world, f"{prefix}/tokenize", {"prompt": words(5), "model": "tiny"})
    assert status == 200
    assert (answer["count"], answer["max_model_len"]) == (5, 1000)
    tokens = answer["tokens"]
    status, back = await ask(world, f"{prefix}/detokenize", {"tokens": tokens})
    assert (status, back) == (200, {"text": words(5)})
    status, both = await ask(world, f"{prefix}/tokenize", {"prompt": [words(5), words(3)]})
    assert both["tokens"][0] == tokens
    assert both["count"] == [5, 3]
    status, back = await ask(world, f"{prefix}/detokenize", {"tokens": both["tokens"]})
    assert back["text"] == [words(5), words(3)]


async def test_messages_are_counted_as_a_chat_counts_them(world: World) -> None:
    messages = [{"role": "user", "content": words(7)}]
    _, counted = await ask(world, "/tokenize", {"messages": messages})
    body = {"messages": messages, "max_tokens": 2}
    async with world.http.post("/v1/chat/completions", json=body) as response:
        assert response.headers["x-prfaas-prompt-tokens"] == str(counted["count"])


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/tokenize", {}, "exactly one of"),
        ("/tokenize", {"prompt": "a", "messages": []}, "exactly one of"),
        ("/tokenize", {"prompt": 5}, "prompt: expected text"),
        ("/tokenize", {"prompt": ["a", 5]}, "prompt: expected text"),
        ("/tokenize", {"prompt": "\ud800"}, "Unicode"),
        ("/tokenize", {"messages": ["x"]}, "each needs a role"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", b"[" * 100_000, "JSON"),
        ("/detokenize", {}, "tokens: missing"),
        ("/detokenize", {"tokens": ["a"]}, "expected token ids"),
        ("/detokenize", {"tokens": [[1], 5]}, "expected token ids"),
        ("/detokenize", {"tokens": [-1]}, "token id -1"),
        ("/detokenize", {"tokens": [1 << 70]}, "token id"),
    ],
)
async def test_what_cannot_be_is_400(world: World, path: str, body: Any, says: str) -> None:
    status, answer = await ask(world, path, body)
    assert status == 400
    assert says in answer["error"]["message"]


async def test_an_unknown_model_is_404(world: World) -> None:
    status, answer = await ask(world, "/tokenize", {"prompt": "a", "model": "huge"})
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
