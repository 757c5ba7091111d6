"""A node agent of which only the stream of signals exists; a test says what it says."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from prfaas.transfer.node_signals import NodeSignals
from prfaas.transfer.signals import PeerSignals

SAY_EVERY_S = 0.05


class FakeAgent:
    """Serves `/signals` of one node, whose path leads to one peer; `is_mute` ends its streams."""

    def __init__(self, node: str, peer: str) -> None:
        self._node = node
        self._peer = peer
        self._runner: web.AppRunner | None = None
        self.signals = PeerSignals()
        self.is_mute = False
        self.url = ""
        self.rooms: dict[str, dict[str, Any]] = {}
        self.told: list[str] = []

    def says(self, **values: Any) -> None:
        """Say this of the path from now on."""
        self.signals = PeerSignals(**values)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/signals", self._stream)
        app.router.add_get("/rooms/{room}", self._tell)
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

    async def _tell(self, request: web.Request) -> web.Response:
        """Tell of any room what `rooms` has of "any"."""
        self.told.append(request.match_info["room"])
        if "any" not in self.rooms:
            raise web.HTTPNotFound
        return web.json_response(self.rooms["any"])

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self.is_mute:
            raise web.HTTPServiceUnavailable
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            while not self.is_mute:
                peers = {f"{self._peer}/0": self.signals}
                await response.write(NodeSignals(self._node, 0.0, peers).to_line())
                await asyncio.sleep(SAY_EVERY_S)
        return response
