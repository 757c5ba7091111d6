"""The port for clients: TLS, places, and deadlines for who is slow."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from prfaas.api_section import ApiSection
from prfaas_coord.guarded_port import GuardedPort, Places
from prfaas_gateway.file_limit import allow_connections
from prfaas_gateway.public_protocol import PublicProtocol
from prfaas_gateway.public_tls import PublicTls

MAX_HANDSHAKES, MAX_HANDSHAKES_EACH = 1024, 768
_LINGERING_S = 2.0
"""How long what an early answer left unread of a body is read, before the connection is closed."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PublicPort:
    """Serves an application. Requests that run when the port closes have `drain_s` to end.

    Raises:
        ConfigError: the certificate or its key is not usable.
    """

    def __init__(self, app: web.Application, section: ApiSection, *, drain_s: float = 10.0) -> None:
        app.middlewares.insert(0, self._with_deadline)
        self._section = section
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=drain_s
        )
        self._guard = GuardedPort(
            self._new_protocol,
            places=Places(most=section.max_connections, most_each=section.max_connections_each),
            handshakes=Places(most=MAX_HANDSHAKES, most_each=MAX_HANDSHAKES_EACH),
            first_s=section.header_timeout_s,
            tls=PublicTls(section).context() if section.cert else None,
        )

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve while the context lasts; then requests that run may end."""
        allow_connections(self._section.max_connections)
        await self._runner.setup()
        async with self._guard.serving(listener):
            try:
                yield
            finally:
                await self._guard.accept_no_more()
                listener.close()
                await self._runner.cleanup()

    def _new_protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": self._section.idle_timeout_s,
            "lingering_time": _LINGERING_S,
        }
        return PublicProtocol(server, loop=asyncio.get_running_loop(), **options)

    @web.middleware
    async def _with_deadline(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Give a request all the time that its own deadlines give it, and the next one less."""
        self._guard.extend(request.protocol, None)
        try:
            return await handler(request)
        finally:
            # What is left of a short answer to send counts as well.
            later_s = self._section.idle_timeout_s + self._section.header_timeout_s
            self._guard.extend(request.protocol, later_s)
