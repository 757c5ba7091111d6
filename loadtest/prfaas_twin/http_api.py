"""A twin's HTTP server: the endpoints of SGLang that clients, gateways and agents use.

Source: sglang 0.5.23 srt/entrypoints/http_server.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
from aiohttp import web

from prfaas_twin import metrics
from prfaas_twin.answers import failure_events, form_of, openai_error
from prfaas_twin.ask import Api, Ask, BadAskError, read_object
from prfaas_twin.generation import Finish, Generation

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES = 64 << 20
_LONG_BODY_BYTES = 256 << 10
"""Longer bodies are read in a thread: the event loop must not wait for them."""
_HEALTH_TIMEOUT_S = 20.0
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


class Engine(Protocol):
    """What the server needs of a twin."""

    def read(self, api: Api, raw: bytes) -> Ask:
        """Return what a body asks for. Raises: BadAskError."""

    def start_generation(self, ask: Ask) -> Generation:
        """Serve a request."""

    def drop(self, generation: Generation) -> None:
        """Abort a request whose client went away."""

    def abort(self, rid: str, *, everything: bool) -> None:
        """Abort requests by their id."""

    async def tick(self) -> None:
        """Return when the compute has made a turn; never while it hangs."""

    @property
    def is_stopping(self) -> bool:
        """Whether it takes nothing new."""

    def server_info(self) -> Json:
        """Return its settings."""

    def model_info(self) -> Json:
        """Return what its model is."""

    def load(self) -> Json:
        """Return what it has to do."""

    def flush_cache(self) -> str:
        """Empty the prefix cache; return why not, or nothing."""

    async def switch_role(self, body: Json) -> Json:
        """Change the role; `success` says whether it did."""


def build_app(engine: Engine) -> web.Application:
    """Return the application of one twin."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_in_sglangs_words])
    app.on_response_prepare.append(_name_server)
    routes = _Routes(engine)
    for api in Api:
        app.router.add_post(api, routes.generate)
    app.router.add_put(Api.GENERATE, routes.generate)
    for path, handler in routes.get.items():
        app.router.add_get(path, handler)
    app.router.add_route("*", "/flush_cache", routes.flush_cache)
    app.router.add_post("/abort_request", routes.abort_request)
    app.router.add_post("/pd_role_switch", routes.switch_role)
    return app


async def _name_server(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("Server", "uvicorn")


@web.middleware
async def _in_sglangs_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        detail = error.reason.title() if error.status != 413 else error.reason
        return web.json_response({"detail": detail}, status=error.status)


class _Routes:
    """The handlers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.get: dict[str, Handler] = {
            "/health": self.health,
            "/health_generate": self.health,
            "/ready": self.ready,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/v1/models": self.models,
            "/v1/loads": self.loads,
            "/metrics": self.metrics,
        }

    # ---- tokens --------------------------------------------------------------------------------

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for tokens."""
        api = Api(request.path)
        raw = await request.read()
        try:
            if len(raw) > _LONG_BODY_BYTES:
                ask = await asyncio.to_thread(self._engine.read, api, raw)
            else:
                ask = self._engine.read(api, raw)
        except BadAskError as error:
            return _refusal(api, error)
        generation = self._engine.start_generation(ask)
        try:
            if ask.stream:
                return await self._stream(request, generation)
            await generation.changed(0)
            return _whole(generation)
        finally:
            if generation.finish is None:
                self._engine.drop(generation)

    async def _stream(self, request: web.Request, generation: Generation) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        form = form_of(generation)
        while True:
            await generation.changed(form.sent)
            if _failure(generation):
                for event in failure_events(generation):
                    await response.write(event)
                break
            # One write for all that there is: a packet, not three.
            await response.write(b"".join(form.events()))
            if generation.finish is not None:
                break
        await response.write_eof()
        return response

    # ---- about the server ----------------------------------------------------------------------

    async def health(self, _request: web.Request) -> web.Response:
        """Say whether a token could be made: not while it stops, or hangs."""
        if self._engine.is_stopping:
            return web.Response(status=503)
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await self._engine.tick()
        except TimeoutError:
            return web.Response(status=503)
        return web.Response()

    async def ready(self, _request: web.Request) -> web.Response:
        """Say whether requests are taken."""
        return web.Response(status=503 if self._engine.is_stopping else 200)

    async def model_info(self, _request: web.Request) -> web.Response:
        """Tell of the model."""
        return web.json_response(self._engine.model_info())

    async def server_info(self, _request: web.Request) -> web.Response:
        """Tell the settings."""
        return web.json_response(self._engine.server_info())

    async def models(self, _request: web.Request) -> web.Response:
        """List the one model."""
        info = self._engine.server_info()
        name = info["served_model_name"]
        card = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": info["context_length"],
        }
        return web.json_response({"object": "list", "data": [card]})

    async def loads(self, _request: web.Request) -> web.Response:
        """Tell the load."""
        return web.json_response(self._engine.load())

    async def metrics(self, _request: web.Request) -> web.Response:
        """Tell the load to Prometheus."""
        name = self._engine.server_info()["served_model_name"]
        text = metrics.render(self._engine.load(), model=name)
        return web.Response(text=text, content_type="text/plain")

    # ---- control -------------------------------------------------------------------------------

    async def flush_cache(self, _request: web.Request) -> web.Response:
        """Empty the prefix cache."""
        problem = self._engine.flush_cache()
        return web.Response(text=problem or _FLUSHED, status=400 if problem else 200)

    async def abort_request(self, request: web.Request) -> web.Response:
        """Abort requests; one that is not here is no error."""
        try:
            body = read_object(await request.read())
        except BadAskError as error:
            return _refusal(Api.CHAT, error)
        rid = body.get("rid")
        everything = body.get("abort_all") is True
        self._engine.abort(rid if isinstance(rid, str) else "", everything=everything)
        return web.Response()

    async def switch_role(self, request: web.Request) -> web.Response:
        """Turn a prefill into a decode, or back."""
        try:
            body = read_object(await request.read())
            if body.get("new_role", "") not in ("prefill", "decode", ""):
                text = "1 validation error: Input should be 'prefill', 'decode' or ''"
                raise BadAskError(text, kind="Bad Request")
        except BadAskError as error:
            return _refusal(Api.CHAT, error)
        result = await self._engine.switch_role(body)
        return web.json_response(result, status=200 if result["success"] else 400)


def _refusal(api: Api, error: BadAskError) -> web.Response:
    """Return the answer to a request that its client must change."""
    if api is Api.GENERATE and error.kind == "BadRequestError":
        return web.json_response({"error": {"message": str(error)}}, status=400)
    return web.json_response(openai_error(str(error), error.kind, 400), status=400)


def _failure(generation: Generation) -> Finish | None:
    finish = generation.finish
    return finish if finish is not None and finish.status is not None else None


def _whole(generation: Generation) -> web.Response:
    failure = _failure(generation)
    if failure is not None and failure.status is not None:
        error = openai_error(failure.message, str(failure.status), failure.status)
        return web.json_response(error, status=failure.status)
    body = orjson.dumps(form_of(generation).whole())
    return web.Response(body=body, content_type="application/json")
