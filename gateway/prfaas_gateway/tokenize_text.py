"""/tokenize and /detokenize, as SGLang has them: answered here, no engine is asked.

Source: sglang 0.5.23 srt/entrypoints/openai/serving_tokenize.py.
"""

import asyncio
from typing import Any

from aiohttp import web

from prfaas.errors import ConfigError
from prfaas.reasons import Reason
from prfaas.records import NodeRecord
from prfaas_gateway.admission import admitted
from prfaas_gateway.errors import RequestError, ServiceError
from prfaas_gateway.gateway import GATEWAY
from prfaas_gateway.inference import (
    ChatPrompt,
    JsonObject,
    TextPrompt,
    parse_chat,
    parse_object,
    typed_field,
)
from prfaas_gateway.slow_clients import read_body
from prfaas_gateway.tokenizer import ModelTokenizer

TOKENIZE_PATHS = ("/tokenize", "/v1/tokenize")
DETOKENIZE_PATHS = ("/detokenize", "/v1/detokenize")
_MAX_TEXTS = 1024


async def handle_tokenize(request: web.Request) -> web.Response:
    """Return the tokens of a text, of some texts, or of messages.

    Raises:
        RequestError: naming the field.
        ServiceError: no node is known that serves the model, or too many requests are served.
    """
    with admitted(request.app[GATEWAY]):
        return await _tokenized(request)


async def _tokenized(request: web.Request) -> web.Response:
    body = await _body(request)
    node, tokenizer = await _tokenizer(request, body)
    special = typed_field(body, "add_special_tokens", bool, default=True)
    prompts = _prompts(body)
    found = []
    for each in prompts:
        found.append(await tokenizer.token_ids(each, add_special_tokens=special))
        await asyncio.sleep(0)  # many short texts are as long as one
    is_list = isinstance(body.get("prompt"), list)
    counts = [len(tokens) for tokens in found]
    answer = {
        "tokens": found if is_list else found[0],
        "count": counts if is_list else counts[0],
        "max_model_len": request.app[GATEWAY].fleet.context_limit_tokens(node.model_id) or -1,
    }
    return web.json_response(answer)


async def handle_detokenize(request: web.Request) -> web.Response:
    """Return the text of tokens, or the texts of lists of tokens.

    Raises:
        RequestError: naming the field.
        ServiceError: no node is known that serves the model, or too many requests are served.
    """
    with admitted(request.app[GATEWAY]):
        return await _detokenized(request)


async def _detokenized(request: web.Request) -> web.Response:
    body = await _body(request)
    _, tokenizer = await _tokenizer(request, body)
    skip = typed_field(body, "skip_special_tokens", bool, default=True)
    tokens = typed_field(body, "tokens", list, default=None)
    if tokens is None:
        raise RequestError("tokens: missing", param="tokens")
    is_nested = bool(tokens) and isinstance(tokens[0], list)
    lists = tokens if is_nested else [tokens]
    if len(lists) > _MAX_TEXTS:
        raise RequestError(f"tokens: more than {_MAX_TEXTS} lists", param="tokens")
    for each in lists:
        if not isinstance(each, list) or any(type(token) is not int for token in each):
            raise RequestError("tokens: expected token ids, or lists of them", param="tokens")
    texts = [await tokenizer.text_of(each, skip_special_tokens=skip) for each in lists]
    return web.json_response({"text": texts if is_nested else texts[0]})


async def _body(request: web.Request) -> JsonObject:
    raw = await read_body(request)
    return await asyncio.to_thread(parse_object, raw)


async def _tokenizer(request: web.Request, body: JsonObject) -> tuple[NodeRecord, ModelTokenizer]:
    gateway = request.app[GATEWAY]
    node = gateway.fleet.find_model(typed_field(body, "model", str, default=""))
    try:
        return node, await gateway.tokenizers.get(node.model_path)
    except ConfigError as error:
        raise ServiceError(Reason.NOT_READY, str(error)) from None


def _prompts(body: JsonObject) -> list[TextPrompt | ChatPrompt]:
    prompt: Any = body.get("prompt")
    if (prompt is None) == (body.get("messages") is None):
        raise RequestError("exactly one of prompt and messages is needed", param="prompt")
    if prompt is None:
        return [parse_chat(body)]
    texts = prompt if isinstance(prompt, list) else [prompt]
    if len(texts) > _MAX_TEXTS or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"prompt: expected text, or up to {_MAX_TEXTS} texts", param="prompt")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError("prompt: not valid Unicode text", param="prompt") from None
    return [TextPrompt(text) for text in texts]
