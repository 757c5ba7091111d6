"""SGLang's bootstrap requests: inside TLS to other hosts, plain on this one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import requests
from aiohttp import web
from certificates import Certificates

from prfaas.config import SecurityMode, SecuritySection
from prfaas_agent.tls_proxy import TlsProxy
from prfaas_plugin import peer_http
from prfaas_plugin.peer_http import PeerHttp, leaves_host
from prfaas_transport.tls_context import TlsContexts

#: Where other hosts reach the bootstrap server; it itself listens on 127.0.0.1.
HOST = "127.0.0.2"


@pytest.fixture
def certs(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certs")
    made.node("prefill", addresses=(HOST,))
    made.node("decode", region="b")
    return made


def section(certs: Certificates, node: str) -> SecuritySection:
    files = certs.files(node)
    return SecuritySection(SecurityMode.MTLS, str(files.ca), str(files.cert), str(files.key))


@pytest.fixture
async def port(certs: Certificates) -> AsyncIterator[int]:
    async def route(request: web.Request) -> web.Response:
        return web.json_response({"asked": str(request.rel_url), "by": request.method})

    app = web.Application()
    app.router.add_route("*", "/route", route)
    runner = web.AppRunner(app)
    await runner.setup()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        number = int(runner.addresses[0][1])
        contexts = TlsContexts(certs.files("prefill"))
        proxy = TlsProxy(contexts, deployment="demo", host=HOST, port=number)
        await stack.enter_async_context(proxy.serving())
        yield number


@pytest.fixture(autouse=True)
def other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test has loopback addresses only; one of them plays another host."""
    monkeypatch.setattr(peer_http, "leaves_host", lambda url: HOST in url)


async def test_requests_to_other_hosts_go_inside_tls(certs: Certificates, port: int) -> None:
    http = PeerHttp(section(certs, "decode"))
    for host in (HOST, "127.0.0.1"):
        url = f"http://{host}:{port}/route"
        answer = await asyncio.to_thread(http.get, url, params={"rank": -1}, timeout=5)
        assert answer.json() == {"asked": "/route?rank=-1", "by": "GET"}
        assert answer.url.startswith("https" if host == HOST else "http:")
    answer = await asyncio.to_thread(http.put, f"http://{HOST}:{port}/route", json={}, timeout=5)
    assert answer.json()["by"] == "PUT"
    with http.Session() as session:
        answer = await asyncio.to_thread(session.post, f"http://{HOST}:{port}/route", timeout=5)
        assert answer.json()["by"] == "POST"


async def test_without_a_certificate_or_under_anothers_address_nothing_is_told(
    certs: Certificates, port: int, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path / "foreign")
    foreign.node("decode")
    url = f"http://{HOST}:{port}/route"
    for http in (PeerHttp(section(foreign, "decode")), PeerHttp(SecuritySection())):
        with pytest.raises(requests.RequestException):
            await asyncio.to_thread(http.get, url, timeout=5)
    certs.node("prefill", addresses=("10.9.9.9",))
    with pytest.raises(requests.exceptions.SSLError, match="10"):
        await asyncio.to_thread(PeerHttp(section(certs, "decode")).get, url, timeout=5)


def test_what_leaves_this_host() -> None:
    assert leaves_host("http://10.0.0.1:1/route")
    assert leaves_host("http://prefill.example/route")
    assert leaves_host("http://[2001:db8::1]:30100/route")
    for url in ("http://127.0.0.1:1/x", "http://[::1]:1/x", "http://localhost/x"):
        assert not leaves_host(url)
