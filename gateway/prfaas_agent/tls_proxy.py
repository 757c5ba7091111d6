"""Serve an engine's ports to other hosts, inside mutual TLS.

With TLS on, the engine listens on loopback only. The agent accepts on the node's own address under
the same port, checks the certificate, and passes bytes on; a connection that ends on one side ends
on the other, so that an engine sees its client go.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from prfaas.config import NodeConfig, SecurityMode
from prfaas.errors import PreflightError
from prfaas.records import Role
from prfaas_agent.first_of import first_of
from prfaas_agent.sglang_args import LOOPBACK
from prfaas_coord.guarded_port import GuardedPort, Places

# The transport takes a while to import: not where it is not needed.
if TYPE_CHECKING:
    from prfaas_transport.tls_context import TlsContexts

logger = logging.getLogger(__name__)

MAX_CONNECTIONS, MAX_CONNECTIONS_EACH = 4096, 3072
MAX_HANDSHAKES, MAX_HANDSHAKES_EACH = 256, 64
"""In all, and of each address: so nobody can shut the others out."""
HANDSHAKE_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 5.0
_PART_BYTES = 1 << 18


class TlsProxy:
    """One port: `host:port` inside TLS, to `127.0.0.1:port`."""

    def __init__(self, contexts: "TlsContexts", *, deployment: str, host: str, port: int) -> None:
        self.refused: Counter[str] = Counter()
        self._connections: set[asyncio.Task[None]] = set()
        self._deployment = deployment
        self._host = host
        self._port = port
        self._guard = GuardedPort(
            self._new_protocol,
            places=Places(most=MAX_CONNECTIONS, most_each=MAX_CONNECTIONS_EACH),
            handshakes=Places(most=MAX_HANDSHAKES, most_each=MAX_HANDSHAKES_EACH),
            first_s=HANDSHAKE_TIMEOUT_S,
            tls=newest_server_context(contexts),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the context lasts.

        Raises:
            PreflightError: the address cannot be bound.
        """
        async with self._guard.serving(self._listen()):
            try:
                yield
            finally:
                await self._guard.accept_no_more()
                for connection in self._connections:
                    connection.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family, backlog=1024)
        except OSError as error:
            text = f"cannot listen on {self._host}:{self._port}: {error.strerror or error}"
            raise PreflightError(text) from None

    def _new_protocol(self) -> asyncio.Protocol:
        reader = asyncio.StreamReader(limit=_PART_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader, lambda r, w: self._begin(r, w, protocol))
        return protocol

    async def _begin(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        protocol: asyncio.BaseProtocol,
    ) -> None:
        """Serve a connection that finished its handshake, as long as both sides want."""
        self._guard.extend(protocol, None)
        await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        problem = identity_problem(writer.get_extra_info("peercert"), self._deployment)
        if problem:
            self.refused[problem] += 1
            logger.warning("connection to port %d refused: %s", self._port, problem)
            writer.close()
            return
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            await self._relay(reader, writer)
        finally:
            self._connections.discard(connection)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                near, out = await asyncio.open_connection(LOOPBACK, self._port, limit=_PART_BYTES)
        except (OSError, TimeoutError):
            return  # the engine is away: the client sees its connection end
        try:
            await first_of(_pump(reader, out), _pump(near, writer))
        finally:
            out.close()


def newest_server_context(contexts: "TlsContexts") -> ssl.SSLContext:
    """Return a context that hands every connection over to the newest one."""

    def take_newest(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = contexts.server()

    context = contexts.new_server()
    context.sni_callback = take_newest
    return context


def identity_problem(certificate: dict[str, Any] | None, deployment: str) -> str:
    """Return why the holder of a certificate may not come in, empty if it may."""
    from prfaas_transport.tls_context import identity_of

    identity = identity_of(certificate)
    is_ours = identity is not None and identity.deployment == deployment
    return "" if is_ours else "tls_identity_mismatch"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(_PART_BYTES):
            writer.write(part)
            await writer.drain()


@asynccontextmanager
async def proxies(config: NodeConfig) -> AsyncIterator[list[TlsProxy]]:
    """Serve a node's ports to other hosts while the context lasts; without TLS there is nothing to.

    Raises:
        ConfigError: the certificate's files are not usable.
        PreflightError: an address cannot be bound.
    """
    if config.security.mode is not SecurityMode.MTLS:
        yield []
        return
    from prfaas_transport.security import tls_files
    from prfaas_transport.tls_context import TlsContexts

    contexts = TlsContexts(tls_files(config.security))
    ports = [config.node.port]
    if config.engine and (config.node.role is Role.PREFILL or config.engine.role_switch):
        ports.append(config.engine.bootstrap_port)
    async with AsyncExitStack() as stack:
        made = []
        for port in ports:
            proxy = TlsProxy(
                contexts, deployment=config.node.deployment, host=config.node.host, port=port
            )
            await stack.enter_async_context(proxy.serving())
            made.append(proxy)
        yield made
