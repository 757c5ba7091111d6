"""An HTTP server that behaves like an SGLang engine in prefill or decode mode.

A prefill leg is answered once the decode leg of the same room is there too; the decode leg begins
to answer once the prefill is done. A prefill that fails leaves its decode leg waiting, as SGLang's
does until its bootstrap timeout, so only a gateway that cancels it ever gets free of it.
"""

import asyncio
import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

from prfaas.records import NodeRecord, Role

Json = dict[str, Any]


class Fault(StrEnum):
    """What one request to an engine runs into."""

    HTTP_400 = "http_400"
    HTTP_500 = "http_500"
    HTTP_503 = "http_503"
    RESET = "reset"
    DIE_AFTER_MEETING = "die_after_meeting"
    FAIL_AFTER_DECODE = "fail_after_decode"
    HANG = "hang"
    SSE_ERROR = "sse_error"
    ABORTED = "aborted"
    MID_STREAM_RESET = "mid_stream_reset"
    SLOW_STREAM = "slow_stream"
    ENDLESS_STREAM = "endless_stream"


@dataclass(frozen=True)
class Saying:
    """What a decode says instead of an answer: these bytes, whatever they are."""

    parts: tuple[bytes, ...]
    status: int = 200
    content_type: str = "text/event-stream"
    breaks_off: bool = False


@dataclass
class Room:
    prefill_here: asyncio.Event = field(default_factory=asyncio.Event)
    decode_here: asyncio.Event = field(default_factory=asyncio.Event)
    transferred: asyncio.Event = field(default_factory=asyncio.Event)


class Fabric:
    """What connects engines: the rooms."""

    def __init__(self) -> None:
        self.rooms: dict[int, Room] = defaultdict(Room)


def expected_words(prompt: Any, count: int) -> list[str]:
    """Return the answer to a prompt: it depends on all of it."""
    digest = hashlib.sha256(json.dumps(prompt).encode()).hexdigest()
    return [f"{digest[index % 32 : index % 32 + 4]}" for index in range(count)]


class FakeEngine:
    """One engine. `faults` are used up, one per request, in order."""

    def __init__(self, fabric: Fabric, role: Role, region: str, name: str) -> None:
        self.role, self.region, self.name = role, region, name
        self.faults: list[Fault] = []
        self.sayings: list[Saying] = []
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.streamed_bytes = 0
        self.cancelled: list[str] = []
        self.finished: list[str] = []
        self.abort_requests: list[str] = []
        self.session = "s1"
        self.url = ""
        self._fabric = fabric
        self._runner: web.AppRunner | None = None
        self._port = 0

    def record(self, **changes: Any) -> NodeRecord:
        values: Json = {
            "name": self.name,
            "role": self.role,
            "region": self.region,
            "url": self.url,
            "session": self.session,
            "model_id": "tiny",
            "bootstrap_host": "127.0.0.1" if self.role is Role.PREFILL else "",
            "bootstrap_port": 4321 if self.role is Role.PREFILL else 0,
            "context_tokens": 1000,
            "started_at_s": 100.0,
        }
        return NodeRecord(**{**values, **changes})

    async def start(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        for path in ("/v1/completions", "/v1/chat/completions", "/generate"):
            app.router.add_post(path, self._serve)
        app.router.add_post("/abort_request", self._abort)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _abort(self, request: web.Request) -> web.Response:
        self.abort_requests.append((await request.json())["rid"])
        return web.Response()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body: Json = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        fault = self.faults.pop(0) if self.faults else None
        rid = body["rid"]
        try:
            if fault is Fault.HTTP_400:
                return _error(400, "the engine does not like this")
            if fault is Fault.HTTP_500:
                return _error(500, "the engine is broken")
            if fault is Fault.HTTP_503:
                return _error(503, "The request queue is full.")
            if fault is Fault.RESET:
                return _reset(request)
            if fault is Fault.HANG:
                await asyncio.sleep(3600)
            serve = self._prefill if self.role is Role.PREFILL else self._decode
            response = await serve(request, body, fault)
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled.append(rid)
            raise
        self.finished.append(rid)
        return response

    async def _prefill(
        self, request: web.Request, body: Json, fault: Fault | None
    ) -> web.StreamResponse:
        assert not body["stream"]
        room = self._fabric.rooms[body["bootstrap_room"]]
        room.prefill_here.set()
        await room.decode_here.wait()
        if fault is Fault.DIE_AFTER_MEETING:
            return _reset(request)
        if fault is Fault.ABORTED:
            return _error(500, "KVTransferError: decode went away")
        room.transferred.set()
        if fault is Fault.FAIL_AFTER_DECODE:
            await asyncio.sleep(0.2)
            return _error(500, "too late to matter")
        return web.json_response({"text": "x"})

    async def _decode(
        self, request: web.Request, body: Json, fault: Fault | None
    ) -> web.StreamResponse:
        room = self._fabric.rooms[body["bootstrap_room"]]
        room.decode_here.set()
        await room.transferred.wait()
        prompt = _prompt(body)
        if self.sayings:
            return await _say(request, self.sayings.pop(0))
        words = expected_words(prompt, _count(body))
        if body["stream"]:
            return await self._stream(request, words, fault)
        if fault is Fault.ABORTED:
            return _error(500, "Decode transfer failed for request")
        text, count = " ".join(words), len(words)
        if request.path == "/generate":
            meta = {"finish_reason": {"type": "length"}, "completion_tokens": count}
            return web.json_response({"text": text, "meta_info": meta})
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": count}})

    async def _stream(
        self, request: web.Request, words: list[str], fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for event in _events(request.path, words, fault):
            if event is None:
                return _reset(request)
            await response.write(event)
            self.streamed_bytes += len(event)
        await response.write_eof()
        return response


async def _say(request: web.Request, saying: Saying) -> web.StreamResponse:
    headers = {"Content-Type": saying.content_type}
    response = web.StreamResponse(status=saying.status, headers=headers)
    await response.prepare(request)
    for part in saying.parts:
        await response.write(part)
    if saying.breaks_off:
        return _reset(request)
    await response.write_eof()
    return response


async def _events(path: str, words: list[str], fault: Fault | None) -> AsyncIterator[bytes | None]:
    if fault is Fault.SSE_ERROR:
        error = {"message": "Decode transfer failed", "type": "INTERNAL_SERVER_ERROR", "code": 500}
        yield f"data: {json.dumps({'error': error})}\n\n".encode()
        yield b"data: [DONE]\n\n"
        return
    if fault is Fault.ABORTED:
        reason = {"type": "abort", "message": "Decode transfer failed", "status_code": 500}
        event = {"text": "", "meta_info": {"finish_reason": reason}}
        yield f"data: {json.dumps(event)}\n\n".encode()
        yield b"data: [DONE]\n\n"
        return
    while fault is Fault.ENDLESS_STREAM:
        yield b'data: {"choices": [{"index": 0, "text": "' + b"x" * 65536 + b'"}]}\n\n'
        await asyncio.sleep(0)
    for index, word in enumerate(words):
        if index == 2 and fault is Fault.MID_STREAM_RESET:
            yield b'data: {"choices": [{"te'
            await asyncio.sleep(0.05)
            yield None
        if fault is Fault.SLOW_STREAM and index:
            await asyncio.sleep(0.2)
        yield f"data: {json.dumps({'choices': [{'index': 0, 'text': word + ' '}]})}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _prompt(body: Json) -> Any:
    for name in ("prompt", "messages", "text", "input_ids"):
        if name in body:
            return body[name]
    raise AssertionError(f"no prompt in {body}")


def _count(body: Json) -> int:
    params = body["sampling_params"] if isinstance(body.get("sampling_params"), dict) else body
    return int(params.get("max_tokens", params.get("max_new_tokens", 4)))


def _error(status: int, message: str) -> web.Response:
    error = {"object": "error", "message": message, "type": "InternalServerError", "code": status}
    return web.json_response(error, status=status)


def _reset(request: web.Request) -> web.Response:
    """Cut the connection as a killed process does."""
    with contextlib.suppress(AttributeError):
        request.transport.abort()  # type: ignore[union-attr]
    return web.Response()
