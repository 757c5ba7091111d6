"""Who does not finish a handshake shuts nobody out of an engine's port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from certificates import Certificates

from prfaas_agent import tls_proxy
from prfaas_agent.tls_proxy import TlsProxy
from prfaas_transport.tls_context import TlsContexts

DEPLOYMENT = "demo"
HOST = "127.0.0.2"


class Fronted:
    """An echo service on loopback behind a proxy."""

    def __init__(self, certs: Certificates) -> None:
        self.certs = certs
        self.contexts = TlsContexts(certs.files("a-prefill-0"))
        self.port = 0
        self.proxy: TlsProxy

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Fronted"]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while part := await reader.read(1024):
                writer.write(part)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.proxy = TlsProxy(self.contexts, deployment=DEPLOYMENT, host=HOST, port=self.port)
        async with self.proxy.serving():
            yield self
        server.close()
        await server.wait_closed()

    async def says(self, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(
            HOST, self.port, ssl=self.contexts.http_client(), server_hostname=HOST
        )
        writer.write(text)
        try:
            async with asyncio.timeout(20):
                return await reader.readexactly(len(text))
        finally:
            writer.close()


async def silent(address: str, port: int, stack: AsyncExitStack) -> socket.socket:
    """Return a connection from an address that begins no handshake."""
    sock = stack.enter_context(socket.socket())
    sock.bind((address, 0))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
    return sock


async def test_one_address_cannot_take_all_handshakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(tls_proxy, "MAX_HANDSHAKES_EACH", 3)
    monkeypatch.setattr(tls_proxy, "MAX_HANDSHAKES", 5)
    certs = Certificates(tmp_path / "certs", DEPLOYMENT)
    certs.node("a-prefill-0", addresses=(HOST,))
    async with Fronted(certs).serving() as fronted, AsyncExitStack() as stack:
        for _ in range(3):
            await silent("127.0.0.7", fronted.port, stack)
        one_more = await silent("127.0.0.7", fronted.port, stack)
        async with asyncio.timeout(20):
            assert await asyncio.get_running_loop().sock_recv(one_more, 1) == b""
        assert await fronted.says(b"hello") == b"hello"


async def test_a_connection_without_a_handshake_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_TIMEOUT_S", 0.3)
    certs = Certificates(tmp_path / "certs", DEPLOYMENT)
    certs.node("a-prefill-0", addresses=(HOST,))
    async with Fronted(certs).serving() as fronted, AsyncExitStack() as stack:
        sock = await silent("127.0.0.7", fronted.port, stack)
        async with asyncio.timeout(20):
            assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""


async def test_who_finished_the_handshake_has_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_proxy, "HANDSHAKE_TIMEOUT_S", 3.0)
    certs = Certificates(tmp_path / "certs", DEPLOYMENT)
    certs.node("a-prefill-0", addresses=(HOST,))
    async with Fronted(certs).serving() as fronted:
        reader, writer = await asyncio.open_connection(
            HOST, fronted.port, ssl=fronted.contexts.http_client(), server_hostname=HOST
        )
        await asyncio.sleep(4.0)
        writer.write(b"late")
        async with asyncio.timeout(20):
            assert await reader.readexactly(4) == b"late"
        writer.close()
