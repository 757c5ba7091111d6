"""The agent's own HTTP port, for who watches the node: `/metrics`, `/signals` and `/cache`."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from prfaas.cache_events.feed_batch import FeedBatch, encode_feed_batch, encode_feed_shape
from prfaas.config import NodeConfig, SecurityMode
from prfaas.errors import PreflightError
from prfaas_agent.cache_relay import CacheRelay
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.tls_proxy import identity_problem, newest_server_context
from prfaas_agent.transfer_metrics import TransferMetrics
from prfaas_coord.companion import Companion
from prfaas_coord.guarded_port import GuardedPort, Places

if TYPE_CHECKING:
    from prfaas_transport.tls_context import TlsContexts

MAX_CONNECTIONS, MAX_CONNECTIONS_EACH = 256, 64
MAX_STREAMS, MAX_STREAMS_EACH = 64, 16
"""In all, and of each address: so nobody can shut the others out."""
HEARTBEAT_S = 0.5
STALL_S = 2.0
CACHE_HEARTBEAT_S, CACHE_STALL_S = 1.0, 10.0
FIRST_REQUEST_S = 5.0
NEXT_REQUEST_S = 30.0
"""From a request to the next one, an answer that is read slowly included."""
_SEND_BUFFER_BYTES = 64 << 10
_USER_TIMEOUT_MS = 10_000
_LARGE_BATCH = 256


class ObservationPort:
    """Serves what an `EngineStats` knows. Use `serving`."""

    def __init__(
        self,
        config: NodeConfig,
        stats: EngineStats,
        tls: "TlsContexts | None",
        cache: CacheRelay | None = None,
    ) -> None:
        self._node = config.node
        self._cache = cache
        self._stats = stats
        self._tls = tls
        self._metrics = TransferMetrics(stats, config.node)
        self._streams = Places(most=MAX_STREAMS, most_each=MAX_STREAMS_EACH)
        self._runner = web.AppRunner(
            self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        self._port = GuardedPort(
            self._new_protocol,
            places=Places(most=MAX_CONNECTIONS, most_each=MAX_CONNECTIONS_EACH),
            first_s=FIRST_REQUEST_S,
            tls=None if tls is None else newest_server_context(tls),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve while the context lasts; yields the port.

        Raises:
            PreflightError: the address cannot be bound.
        """
        await self._runner.setup()
        try:
            listener = self._listen()
            async with self._port.serving(listener):
                yield listener.getsockname()[1]
        finally:
            await self._runner.cleanup()

    def _listen(self) -> socket.socket:
        host, port = self._node.host, self._node.agent_port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
        except OSError as error:
            text = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise PreflightError(f"{text}; choose a free agent_port") from None

    def _new_protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return server()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit], client_max_size=1)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/signals", self._get_signals, allow_head=False)
        app.router.add_get(r"/rooms/{room:[0-9]{1,20}}", self._get_room)
        if self._cache is not None:
            app.router.add_get("/cache", self._get_cache, allow_head=False)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self._port.extend(request.protocol, NEXT_REQUEST_S)
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

    async def _get_room(self, request: web.Request) -> web.Response:
        """Tell of one transfer that ended a short while ago."""
        told = self._stats.rooms.find(int(request.match_info["room"]))
        if told is None:
            return web.json_response({"error": "no such room of late"}, status=404)
        return web.json_response(told)

    async def _get_signals(self, request: web.Request) -> web.StreamResponse:
        """Send a line whenever there is news, and every `HEARTBEAT_S` in any case."""
        return await self._streamed(request, self._stream)

    async def _get_cache(self, request: web.Request) -> web.StreamResponse:
        """Send what a reader lacks of the cache's feed, from `?session=S&seq=N` on, and what comes.

        Where nothing comes an empty line does, every `CACHE_HEARTBEAT_S`.
        """
        session, seq = request.query.get("session", ""), request.query.get("seq", "0")
        if not seq.isascii() or not seq.isdigit() or len(seq) > 18:
            raise web.HTTPBadRequest(text="seq: expected a number")
        if self._cache is None or self._cache.shape is None:
            text = "the engine has not told of its cache yet"
            raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "1"})
        return await self._streamed(request, partial(self._feed, self._cache, session, int(seq)))

    async def _streamed(
        self,
        request: web.Request,
        send: Callable[[asyncio.Transport, web.StreamResponse], Awaitable[None]],
    ) -> web.StreamResponse:
        """Let `send` write an answer for as long as it likes, where there is a place for it."""
        transport, address = request.transport, request.remote or ""
        if transport is None or not self._streams.take(address):
            text = f"{MAX_STREAMS} streams are open, or {MAX_STREAMS_EACH} of {address}"
            raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "1"})
        try:
            self._port.extend(request.protocol, None)
            _bound_buffers(transport)
            response = web.StreamResponse(
                headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}
            )
            await response.prepare(request)
            await send(transport, response)
        finally:
            self._streams.give_back(address)
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

    async def _feed(
        self,
        cache: CacheRelay,
        session: str,
        seq: int,
        transport: asyncio.Transport,
        response: web.StreamResponse,
    ) -> None:
        """Return when the reader is gone or does not read; it comes back for what it misses."""
        assert cache.shape is not None
        shape = cache.shape
        try:
            await _write(response, encode_feed_shape(shape))
            while not transport.is_closing() and cache.shape == shape:
                batches = await cache.since(session, seq)
                for batch in batches:
                    await _write(response, await _encoded(batch))
                    session, seq = batch.session, batch.seq
                if not batches:
                    await _write(response, b"\n")
                await cache.wait_changed(CACHE_HEARTBEAT_S)
        except (TimeoutError, ConnectionError):
            pass  # it comes back for what it misses
        transport.abort()


async def _encoded(batch: FeedBatch) -> bytes:
    """Return a batch as a line; large ones are made beside the loop that keeps the node's lease."""
    if batch.size > _LARGE_BATCH:
        return await asyncio.to_thread(encode_feed_batch, batch)
    return encode_feed_batch(batch)


async def _write(response: web.StreamResponse, line: bytes) -> None:
    """Send a line. Raises: TimeoutError, ConnectionError: nobody reads it."""
    async with asyncio.timeout(CACHE_STALL_S):
        await response.write(line)


def _bound_buffers(transport: asyncio.Transport) -> None:
    """Have a reader that does not read, or is gone without a word, show soon."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)


@asynccontextmanager
async def observed(
    config: NodeConfig, stats: EngineStats, cache: CacheRelay | None = None
) -> AsyncIterator[int]:
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
    async with ObservationPort(config, stats, tls, cache).serving() as port:
        await companion.start(stats.follow(), name="engine stats")
        try:
            yield port
        finally:
            await companion.stop(None, None)
