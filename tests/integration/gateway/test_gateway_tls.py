"""What the gateway and the agents say to each other, to engines and to etcd, inside mutual TLS."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from certificates import Certificates
from etcd_server import EtcdServer, find_etcd
from fake_engine import FakeEngine, expected_words
from gateway_world import World
from tiny_tokenizer import words

from prfaas.config import (
    EngineSection,
    EtcdSection,
    GatewaySection,
    NodeConfig,
    NodeSection,
    SecurityMode,
    SecuritySection,
)
from prfaas.errors import PreflightError
from prfaas.records import Role
from prfaas_agent.security_checks import security_problems
from prfaas_agent.tls_proxy import TlsProxy, proxies
from prfaas_coord import EtcdClient, EtcdError, Membership
from prfaas_coord.events import Put
from prfaas_gateway.server import serving
from prfaas_transport.tls_context import TlsContexts, TlsFiles

DEPLOYMENT = "demo"
#: Where other hosts reach an engine; the engine itself listens on 127.0.0.1.
HOST = "127.0.0.2"


@pytest.fixture
def certs(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certs", DEPLOYMENT)
    for node, region in (("a-prefill-0", "a"), ("b-decode-0", "b"), ("b-gateway-0", "b")):
        made.node(node, region=region, addresses=(HOST, "127.0.0.1"))
    made.node("b-etcd-0", region="b", addresses=("127.0.0.1",))
    return made


def section(certs: Certificates, node: str) -> SecuritySection:
    files = certs.files(node)
    return SecuritySection(SecurityMode.MTLS, str(files.ca), str(files.cert), str(files.key))


def engine_config(certs: Certificates, node: str, role: Role, port: int) -> NodeConfig:
    return NodeConfig(
        node=NodeSection(node, role, node[0], DEPLOYMENT, host=HOST, port=port),
        engine=EngineSection(model_path="m"),
        security=section(certs, node),
    )


class Site:
    """An HTTP server on loopback that notes when a client leaves in the middle of an answer."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.port = 0

    async def _echo(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def _drip(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"drop")
                await asyncio.sleep(0.01)
        finally:
            self.left.set()

    async def start(self, stack: AsyncExitStack) -> None:
        app = web.Application(client_max_size=1 << 28)
        app.add_routes([web.post("/echo", self._echo), web.get("/drip", self._drip)])
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = int(runner.addresses[0][1])


class Front:
    """A site behind a proxy, and a client with the gateway's certificate."""

    def __init__(self, site: Site, proxy: TlsProxy, contexts: TlsContexts) -> None:
        self.site = site
        self.proxy = proxy
        self.contexts = contexts
        self.url = f"https://{HOST}:{site.port}"

    async def echo(self, tls: ssl.SSLContext | bool, url: str = "", data: bytes = b"x") -> bytes:
        async with (
            aiohttp.ClientSession() as session,
            session.post((url or self.url) + "/echo", data=data, ssl=tls) as response,
        ):
            return await response.read()


@pytest.fixture
async def front(certs: Certificates) -> AsyncIterator[Front]:
    async with AsyncExitStack() as stack:
        site = Site()
        await site.start(stack)
        config = engine_config(certs, "a-prefill-0", Role.DECODE, site.port)
        (proxy,) = await stack.enter_async_context(proxies(config))
        yield Front(site, proxy, TlsContexts(certs.files("b-gateway-0")))


async def test_requests_pass_whole_and_streams_at_once(front: Front) -> None:
    body = bytes(range(256)) * 3000
    assert await front.echo(front.contexts.http_client(), data=body) == body
    async with aiohttp.ClientSession() as session:
        response = await session.get(front.url + "/drip", ssl=front.contexts.http_client())
        assert await response.content.readexactly(4) == b"drop"
        response.close()
    async with asyncio.timeout(5):
        await front.site.left.wait()  # the engine sees its client go


async def test_strangers_do_not_pass(front: Front, certs: Certificates, tmp_path: Path) -> None:
    foreign = Certificates(tmp_path / "foreign", DEPLOYMENT)
    own = foreign.node("b-gateway-0")
    mixed = TlsFiles(ca=certs.authority.bundle_file, cert=own.cert, key=own.key)
    nameless = ssl.create_default_context(cafile=str(certs.authority.bundle_file))
    certs.node("late")
    certs.expire("late")
    strangers = (TlsContexts(mixed).http_client(), nameless)
    for tls in (*strangers, TlsContexts(certs.files("late")).http_client()):
        with pytest.raises(aiohttp.ClientError):
            await front.echo(tls)
    with pytest.raises(aiohttp.ClientError):
        await front.echo(True, url=front.url.replace("https", "http"))
    front.proxy._deployment = "other"
    with pytest.raises(aiohttp.ClientError):
        await front.echo(front.contexts.http_client())
    assert front.proxy.refused == {"tls_identity_mismatch": 1}
    front.proxy._deployment = DEPLOYMENT
    assert await front.echo(front.contexts.http_client()) == b"x"


async def test_a_server_under_anothers_address_is_refused(
    front: Front, certs: Certificates
) -> None:
    certs.node("a-prefill-0", region="a", addresses=("10.9.9.9",))
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await front.echo(front.contexts.http_client())


async def test_new_certificates_are_used_without_a_restart(
    front: Front, certs: Certificates
) -> None:
    certs.authority.rotate(days=9)
    assert await front.echo(front.contexts.http_client()) == b"x"
    for node in certs.authority.nodes():
        certs.authority.renew(node, before_days=30, days=90)
    assert await front.echo(front.contexts.http_client()) == b"x"
    certs.authority.retire()
    assert await front.echo(front.contexts.http_client()) == b"x"


async def test_a_taken_port_is_one_line(certs: Certificates) -> None:
    taken = await asyncio.start_server(lambda *_: None, HOST, 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(PreflightError, match=f"cannot listen on {HOST}:{port}"):
        async with proxies(engine_config(certs, "a-prefill-0", Role.DECODE, port)):
            pass
    taken.close()


class TlsEtcdServer(EtcdServer):
    """An etcd that talks to holders of a certificate only."""

    def __init__(self, data_dir: Path, files: TlsFiles) -> None:
        super().__init__(data_dir)
        self._files = files

    def _launch(self) -> "subprocess.Popen[bytes]":
        client, peer = f"https://{self.endpoint}", f"http://127.0.0.1:{self.peer_port}"
        command = [find_etcd(), "--name", "test", "--data-dir", str(self.data_dir)]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"test={peer}", "--unsafe-no-fsync"]
        command += ["--cert-file", str(self._files.cert), "--key-file", str(self._files.key)]
        command += ["--trusted-ca-file", str(self._files.ca), "--client-cert-auth"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@pytest.fixture
async def tls_etcd(certs: Certificates, tmp_path: Path) -> AsyncIterator[TlsEtcdServer]:
    server = TlsEtcdServer(tmp_path / "etcd", certs.files("b-etcd-0"))
    await server.start()
    yield server
    server.kill()


def gateway_config(certs: Certificates, endpoint: str, model_path: Path) -> NodeConfig:
    return NodeConfig(
        node=NodeSection("b-gateway-0", Role.GATEWAY, "b", DEPLOYMENT),
        etcd=EtcdSection((endpoint,)),
        gateway=GatewaySection(model_path=str(model_path), threshold_tokens=100),
        security=section(certs, "b-gateway-0"),
    )


async def test_etcd_answers_holders_of_a_certificate_only(
    tls_etcd: TlsEtcdServer, certs: Certificates, model_path: Path
) -> None:
    config = gateway_config(certs, tls_etcd.endpoint, model_path)
    async with EtcdClient.of(config, call_timeout_s=5) as client:
        await client.put("/k", "v")
    for stranger in (EtcdClient([tls_etcd.endpoint]), EtcdClient.of(strange(config))):
        async with stranger:
            with pytest.raises(EtcdError):
                await stranger.get("/k")


async def test_a_client_shows_etcd_its_newest_certificate(
    tls_etcd: TlsEtcdServer, certs: Certificates, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CA is replaced and etcd trusts only the new one: who kept the old certificate is out."""
    monkeypatch.setattr("prfaas_coord.client.RENEW_CHECK_S", 0.0)
    config = gateway_config(certs, tls_etcd.endpoint, model_path)
    authority = certs.authority
    async with EtcdClient.of(config, call_timeout_s=5) as client, asyncio.timeout(12):
        await client.put("/k", "1")
        events = client.watch("/")
        assert "/k" in (await anext(events)).items  # type: ignore[union-attr]
        authority.rotate(days=9)
        for name in ("b-gateway-0", "b-etcd-0", "a-prefill-0", "b-decode-0"):
            authority.renew(name, before_days=30, days=90, new_key=True)
        authority.retire()
        tls_etcd.kill()
        await tls_etcd.start()
        for _ in range(100):
            if await written(client, "/k", "2"):
                break
            await asyncio.sleep(0.1)
        while not isinstance(event := await anext(events), Put) or event.item.value != b"2":
            pass
        await events.aclose()


async def written(client: EtcdClient, key: str, value: str) -> bool:
    """Say whether etcd, which may just be starting, took a write."""
    try:
        await client.put(key, value)
    except EtcdError:
        return False
    return True


async def test_a_half_replaced_certificate_is_not_used(
    tls_etcd: TlsEtcdServer, certs: Certificates, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prfaas_coord.client.RENEW_CHECK_S", 0.0)
    config = gateway_config(certs, tls_etcd.endpoint, model_path)
    files = certs.files("b-gateway-0")
    async with EtcdClient.of(config, call_timeout_s=5) as client:
        old = files.key.read_bytes()
        files.key.write_bytes(certs.files("a-prefill-0").key.read_bytes())
        await client.put("/k", "1")
        files.key.unlink()
        await client.put("/k", "2")
        files.key.write_bytes(old)
        await client.put("/k", "3")


def strange(config: NodeConfig) -> NodeConfig:
    return replace(config, security=SecuritySection())


async def test_a_request_crosses_regions_inside_tls(
    tls_etcd: TlsEtcdServer, certs: Certificates, model_path: Path
) -> None:
    config = gateway_config(certs, tls_etcd.endpoint, model_path)
    world = World(tls_etcd.endpoint, str(model_path), deployment=DEPLOYMENT)
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(EtcdClient.of(config))
        for name, role in (("a-prefill-0", Role.PREFILL), ("b-decode-0", Role.DECODE)):
            engine = FakeEngine(world.fabric, role, name[0], name)
            await engine.start()
            stack.push_async_callback(engine.stop)
            record = engine.record()
            port = int(record.url.rpartition(":")[2])
            front = engine_config(certs, name, role, port)
            await stack.enter_async_context(proxies(replace(front, engine=None)))
            record = replace(record, url=f"https://{HOST}:{port}")
            membership = Membership(etcd, DEPLOYMENT).register(record, ttl_s=5)
            await stack.enter_async_context(membership)
        world.url = await stack.enter_async_context(serving(config))
        world.http = await stack.enter_async_context(aiohttp.ClientSession(world.url))
        await world.until_fleet(lambda fleet: len(fleet["nodes"]) == 3)
        prompt: Any = words(150)
        response, answer = await world.complete(prompt)
        assert response.status == 200, answer
        assert response.headers["x-prfaas-route"] == "offload"
        assert answer["choices"][0]["text"] == " ".join(expected_words(prompt, 4))


def test_what_is_wrong_is_found_before_the_start(certs: Certificates) -> None:
    config = engine_config(certs, "a-prefill-0", Role.DECODE, 1)
    assert security_problems(config) == []
    other = replace(config, node=replace(config.node, name="a-prefill-1", host="10.0.0.1"))
    identity, address = security_problems(other)
    assert "is not of prfaas://demo/a/a-prefill-1" in identity
    assert "does not name 10.0.0.1; issue it with --address 10.0.0.1" in address
    Path(config.security.key).chmod(0o644)
    assert "chmod 600" in security_problems(config)[0]
    Path(config.security.key).unlink()
    assert "a-prefill-0.key: No such file" in security_problems(config)[0]
