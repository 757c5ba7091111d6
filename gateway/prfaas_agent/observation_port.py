"""The agent's own HTTP port, for who watches the node: `/metrics` and `/signals`."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from prfaas.config import NodeConfig, SecurityMode
from prfaas.errors import PreflightError
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.tls_proxy import HANDSHAKE_TIMEOUT_S, identity_problem, newest_server_context
from prfaas_agent.transfer_metrics import TransferMetrics
from prfaas_coord.companion import Companion

if TYPE_CHECKING:
    from prfaas_transport.tls_context import TlsContexts

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
MAX_STREAMS = 64
HEARTBEAT_S = 0.5
STALL_S = 2.0
FIRST_REQUEST_S = 5.0
_SEND_BUFFER_BYTES = 64 << 10
_USER_TIMEOUT_MS = 10_000


class ObservationPort:
    """Serves what an `EngineStats` knows. Use `serving`."""

    def __init__(self, config: NodeConfig, stats: EngineStats, tls: "TlsContexts | None") -> None:
        self._node = config.node
        self._stats = stats
        self._tls = tls
        self._metrics = TransferMetrics(stats, config.node)
        self._streams = 0
        self._silent: dict[Any, asyncio.TimerHandle] = {}
        self._runner = web.AppRunner(
            self._app(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=30.0,
            shutdown_timeout=0.1,
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve while the context lasts; yields the port.

        Raises:
            PreflightError: the address cannot be bound.
        """
        await self._runner.setup()
        try:
            server = await self._listen()
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                server.close()
        finally:
            await self._runner.cleanup()

    async def _listen(self) -> asyncio.Server:
        tls = None if self._tls is None else newest_server_context(self._tls)
        try:
            return await asyncio.get_running_loop().create_server(
                self._new_protocol,
                self._node.host,
                self._node.agent_port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_TIMEOUT_S,
            )
        except OSError as error:
            where = f"{self._node.host}:{self._node.agent_port}"
            text = f"cannot listen on {where}: {error.strerror or error}; choose a free agent_port"
            raise PreflightError(text) from None

    def _new_protocol(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None
        # A TLS handshake under way is not yet a connection of the server's.
        if max(len(server.connections), len(self._silent)) >= MAX_CONNECTIONS:
            logger.warning("connection refused: %d are open", MAX_CONNECTIONS)
            return _Refusal()
        protocol = server()
        loop = asyncio.get_running_loop()
        self._silent[protocol] = loop.call_later(FIRST_REQUEST_S, self._end_silent, protocol)
        return protocol

    def _end_silent(self, protocol: Any) -> None:
        del self._silent[protocol]
        protocol.force_close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit], client_max_size=1)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/signals", self._get_signals, allow_head=False)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        silence = self._silent.pop(request.protocol, None)
        if silence is not None:
            silence.cancel()
        if self._tls is not None and request.transport is not None:
            certificate = request.transport.get_extra_info("peercert")
            problem = identity_problem(certificate, self._node.deployment)
            if problem:
                raise web.HTTPForbidden(text=problem)
        response: web.StreamResponse = await handler(request)
        return response

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=self._metrics.render(), headers=headers)

    async def _get_signals(self, request: web.Request) -> web.StreamResponse:
        """Send a line whenever there is news, and every `HEARTBEAT_S` in any case."""
        if self._streams >= MAX_STREAMS or request.transport is None:
            text = f"{MAX_STREAMS} streams are open"
            raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "1"})
        _bound_buffers(request.transport)
        response = web.StreamResponse(
            headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}
        )
        self._streams += 1
        try:
            await response.prepare(request)
            await self._stream(request.transport, response)
        finally:
            self._streams -= 1
        return response

    async def _stream(self, transport: asyncio.Transport, response: web.StreamResponse) -> None:
        """Return when the reader is gone or does not read; lines that it misses are left out."""
        loop = asyncio.get_running_loop()
        took_s = loop.time()
        while not transport.is_closing():
            if not transport.get_write_buffer_size():
                took_s = loop.time()
                try:
                    async with asyncio.timeout(STALL_S):
                        await response.write(self._stats.signals_line())
                except (TimeoutError, ConnectionError):
                    break
            elif loop.time() - took_s >= STALL_S:
                break
            await self._stats.wait_changed(HEARTBEAT_S)
        transport.abort()


class _Refusal(asyncio.Protocol):
    """What answers a connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _bound_buffers(transport: asyncio.Transport) -> None:
    """Have a reader that does not read, or is gone without a word, show soon."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)


@asynccontextmanager
async def observed(config: NodeConfig, stats: EngineStats) -> AsyncIterator[int]:
    """Follow the engine's counters and serve them while the context lasts; yields the port.

    Raises:
        ConfigError: the certificate's files are not usable.
        PreflightError: the address cannot be bound.
    """
    tls = None
    if config.security.mode is SecurityMode.MTLS:
        from prfaas_transport.security import tls_files
        from prfaas_transport.tls_context import TlsContexts

        tls = TlsContexts(tls_files(config.security))
    companion = Companion()
    async with ObservationPort(config, stats, tls).serving() as port:
        await companion.start(stats.follow(), name="engine stats")
        try:
            yield port
        finally:
            await companion.stop(None, None)
