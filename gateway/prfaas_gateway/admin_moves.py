"""The handlers for moves of prefixes: what was moved, and to move one by hand."""

import asyncio
import json
from typing import Any

from aiohttp import web

from prfaas.errors import ConfigError
from prfaas.reasons import Reason
from prfaas.records import NodeRecord
from prfaas_gateway.errors import RequestError, ServiceError
from prfaas_gateway.gateway import GATEWAY, Gateway
from prfaas_gateway.inference import TextPrompt, check_encodable, token_prompt
from prfaas_gateway.move_log import MAX_MOVES
from prfaas_gateway.prefix_moves import Salted
from prfaas_gateway.slow_clients import read_body

MOVES_PATH = "/admin/v1/moves"
_KEYS = {"source", "destination", "model", "text", "tokens", "cache_salt", "extra_key"}


def add_moves(app: web.Application) -> None:
    """Add the routes."""
    app.router.add_get(MOVES_PATH, handle_get_moves)
    app.router.add_put(MOVES_PATH, handle_put_move)


async def handle_get_moves(request: web.Request) -> web.Response:
    """Return the last moves, the newest first: `?limit=N`.

    Raises:
        RequestError: a limit that there is not.
    """
    text = request.query.get("limit", "50")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_MOVES:
        raise RequestError(f"limit: {text[:20]!r}: allowed: 1 to {MAX_MOVES}", param="limit")
    return web.json_response(request.app[GATEWAY].dispatcher.moves.describe(int(text)))


async def handle_put_move(request: web.Request) -> web.Response:
    """Move a prompt's prefix from one region's pool to another's, and say what came of it.

    Raises:
        RequestError: the body is no move, or a region has no pool.
        ServiceError: no node is known at all, or its tokenizer is not to be had.
    """
    gateway = request.app[GATEWAY]
    body = await asyncio.to_thread(_parse, await read_body(request))
    node = gateway.fleet.find_model(body.get("model", ""))
    ends = [_mover(gateway, node, body, name) for name in ("source", "destination")]
    if ends[0].pool == ends[1].pool:
        raise RequestError("destination: it has the same pool as the source", param="destination")
    salt = f"{body.get('cache_salt', '')}\0{body.get('extra_key', '')}"
    tokens = body.get("tokens")
    prompt = TextPrompt(body["text"]) if tokens is None else token_prompt(tokens, "tokens")
    try:
        tokenizer = await gateway.tokenizers.get(node.model_path)
    except ConfigError as error:
        raise ServiceError(Reason.NOT_READY, str(error)) from None
    hashed = await tokenizer.encode(prompt, namespace=f"{node.model_id}\0{salt}")
    if not hashed.num_tokens:
        raise RequestError("the prompt has no tokens", param="text")
    answer = await gateway.dispatcher.moves.move(ends[0], ends[1], Salted.of(hashed, salt))
    about = {
        "source": ends[0].name,
        "destination": ends[1].name,
        "prompt_tokens": hashed.num_tokens,
    }
    return web.json_response(about | answer.to_json())


def _mover(gateway: Gateway, node: NodeRecord, body: dict[str, Any], name: str) -> NodeRecord:
    region = body[name]
    found = gateway.dispatcher.moves.mover_in(region, node.model_id)
    if found is None:
        text = f"{name}: no prefill node of {node.model_id} with a pool in region {region!r}"
        raise ServiceError(Reason.NO_PREFILL, text)
    return found


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict) or set(body) - _KEYS:
        raise RequestError('expected {"source": R, "destination": R, "text": T or "tokens": [..]}')
    for name in _KEYS - {"tokens"}:
        if name in body:
            if not isinstance(body[name], str):
                raise RequestError(f"{name}: expected a text", param=name)
            check_encodable(body[name], name)
    for name in ("source", "destination"):
        if name not in body:
            raise RequestError(f"{name}: missing", param=name)
    if ("text" in body) == (body.get("tokens") is not None):
        raise RequestError("exactly one of text and tokens is needed", param="text")
    return body
