"""A server of streamed completions whose times are known: one request at a time, or all at once."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class PacedServer:
    """`service_s` until the first token, then `gap_s` between tokens.

    With `alone` the requests are served one after the other. `refuse` are the prompts' lengths that
    get a 503, `cut` those whose answers lack a token, `stall` those who wait for ever, `endless`
    those whose answer is one line without end, `endless_refusal` those whose refusal is.
    """

    service_s: float = 0.0
    gap_s: float = 0.0
    alone: bool = False
    refuse: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    stall: frozenset[int] = frozenset()
    endless: frozenset[int] = frozenset()
    endless_refusal: frozenset[int] = frozenset()
    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def url(self) -> str:
        """Its base."""
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        prompt = body["prompt"]
        if len(prompt) in self.refuse:
            error = {"error": {"code": "overloaded", "message": "try again"}}
            return web.json_response(error, status=503)
        if len(prompt) in self.stall:
            await asyncio.sleep(3600)
        async with self._lock if self.alone else contextlib.nullcontext():
            with contextlib.suppress(ConnectionResetError):
                return await self._stream(request, body, len(prompt))
            return web.Response(status=499)  # the client went away

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt_tokens: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "content-type": "text/event-stream",
                "x-prfaas-route": "offload" if prompt_tokens > 100 else "local",
                "x-prfaas-prompt-tokens": str(prompt_tokens),
            }
        )
        if prompt_tokens in self.endless_refusal:
            response.set_status(500)
        await response.prepare(request)
        while prompt_tokens in self.endless | self.endless_refusal:
            await response.write(b"x" * 65536)
        tokens = body["max_tokens"] - (1 if prompt_tokens in self.cut else 0)
        for number in range(tokens):
            await asyncio.sleep(self.gap_s if number else self.service_s)
            await _send(response, {"choices": [{"text": "x", "index": 0}]})
        await _send(response, {"choices": [], "usage": {"completion_tokens": tokens}})
        await response.write(b"data: [DONE]\n\n")
        return response


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@contextlib.contextmanager
def serving(server: PacedServer) -> Iterator[PacedServer]:
    """Serve on a free loopback port, in a thread, until the block ends."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/v1/completions", server.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.port = runner.addresses[0][1]
        started.set()
        await stop.wait()
        await runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert started.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
