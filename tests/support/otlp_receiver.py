"""A small OpenTelemetry collector: takes spans by OTLP over HTTP as JSON, and keeps them."""

import asyncio
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Json = dict[str, Any]


class OtlpReceiver:
    """`spans` are all that came, `resources` what they were of. It says no while `is_full`."""

    def __init__(self) -> None:
        self.spans: list[Json] = []
        self.resources: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.is_full = False
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        if self.is_full:
            raise web.HTTPServiceUnavailable
        self.headers.append(dict(request.headers))
        for group in (await request.json())["resourceSpans"]:
            self.resources.append(values(group["resource"]["attributes"]))
            for scope in group["scopeSpans"]:
                self.spans += scope["spans"]
        return web.json_response({})

    async def until(self, count: int) -> list[Json]:
        """Wait until there are so many spans; return them."""
        async with asyncio.timeout(20):
            while len(self.spans) < count:  # noqa: ASYNC110 - another task counts
                await asyncio.sleep(0.05)
        return self.spans


def values(attributes: list[Json]) -> Json:
    """Return attributes as a plain object."""
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}
