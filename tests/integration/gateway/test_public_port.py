"""The gateway's port as the open internet meets it: TLS, places, slow and odd clients."""

import asyncio
import json
import re
import socket
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from certificates import Certificates
from etcd_server import EtcdServer
from fake_engine import Fault
from gateway_world import World
from tiny_tokenizer import words

from prfaas.api_section import ApiSection
from prfaas.errors import ConfigError

COMPLETIONS = "/v1/completions"
HOST = "127.0.0.1"
LIMIT_S = 30.0
"""How long a busy machine may take; the deadlines of the tests are far below."""


@pytest.fixture
async def bare(shared_etcd: EtcdServer, model_path: Path) -> AsyncIterator[World]:
    """Engines, and no gateway yet."""
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        yield world


def port_of(world: World) -> int:
    return int(world.url.rpartition(":")[2])


async def said_until_closed(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(LIMIT_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


def body_of(prompt: str = "w1", **fields: object) -> bytes:
    return json.dumps({"prompt": prompt, "max_tokens": 2, **fields}).encode()


def head(length: int, *lines: str) -> bytes:
    text = [f"POST {COMPLETIONS} HTTP/1.1", "Host: x", f"Content-Length: {length}", *lines]
    return "\r\n".join(text).encode() + b"\r\n\r\n"


# TLS


def tls_api(certs: Certificates, **more: float) -> ApiSection:
    files = certs.node("b-gateway-0", region="b", addresses=(HOST, "localhost"))
    return ApiSection(cert=str(files.cert), key=str(files.key), **more)  # type: ignore[arg-type]


def trusting(certs: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certs.authority.bundle_file))


async def test_inside_tls_requests_and_streams_pass_and_plain_ones_do_not(
    bare: World, tmp_path: Path
) -> None:
    certs = Certificates(tmp_path / "certs")
    await bare.start_gateway(api=tls_api(certs))
    assert bare.url.startswith("https://")
    body = {"prompt": words(5), "max_tokens": 4, "stream": True}
    async with (
        aiohttp.ClientSession() as http,
        http.post(bare.url + COMPLETIONS, json=body, ssl=trusting(certs)) as response,
    ):
        assert response.status == 200
        assert "[DONE]" in await response.text()
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientError):
            await http.get(bare.url.replace("https", "http") + "/health")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = trusting(certs)
        context.minimum_version = context.maximum_version = version
        async with (
            aiohttp.ClientSession() as http,
            http.get(bare.url + "/health", ssl=context) as response,
        ):
            assert response.status == 200
    # Other gateways find it as it is.
    assert (await bare.node("b-gateway-0"))["url"] == bare.url


async def test_a_new_certificate_is_used_without_a_restart_and_a_wrong_one_is_not(
    bare: World, tmp_path: Path
) -> None:
    certs = Certificates(tmp_path / "certs")
    await bare.start_gateway(api=tls_api(certs))

    async def serial() -> int:
        _, writer = await asyncio.open_connection(
            HOST, port_of(bare), ssl=trusting(certs), server_hostname=HOST
        )
        number = int(writer.get_extra_info("peercert")["serialNumber"], 16)
        writer.close()
        return number

    first = await serial()
    certs.authority.renew("b-gateway-0", before_days=3000, days=91, new_key=True)
    second = await serial()
    assert first != second
    files = certs.files("b-gateway-0")
    right = files.key.read_bytes()
    files.key.write_text("nonsense")
    assert await serial() == second
    files.key.write_bytes(right)
    assert await serial() == second


async def test_a_certificate_that_is_none_stops_the_start(bare: World, tmp_path: Path) -> None:
    certs = Certificates(tmp_path / "certs")
    api = tls_api(certs)
    certs.files("b-gateway-0").key.write_text("nonsense")
    with pytest.raises(ConfigError, match=re.escape(api.key)):
        await bare.start_gateway(api=api, wait=False)


async def test_who_does_not_finish_a_handshake_is_dropped(bare: World, tmp_path: Path) -> None:
    certs = Certificates(tmp_path / "certs")
    await bare.start_gateway(api=tls_api(certs, header_timeout_s=0.5))
    reader, writer = await asyncio.open_connection(HOST, port_of(bare))
    writer.write(b"\x16\x03\x01")
    assert await said_until_closed(reader) == b""
    writer.close()


# Slow clients and places


async def test_headers_that_trickle_end_the_connection(bare: World) -> None:
    await bare.start_gateway(api=ApiSection(header_timeout_s=0.5))
    reader, writer = await asyncio.open_connection(HOST, port_of(bare))

    async def trickle() -> None:
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        while True:
            writer.write(b"X-More: 1\r\n")
            await asyncio.sleep(0.05)

    task = asyncio.create_task(trickle())
    assert await said_until_closed(reader) == b""
    task.cancel()
    writer.close()


async def test_a_second_request_that_trickles_ends_the_connection(bare: World) -> None:
    await bare.start_gateway(api=ApiSection(header_timeout_s=0.3, idle_timeout_s=0.4))
    reader, writer = await asyncio.open_connection(HOST, port_of(bare))
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost")
    said = await said_until_closed(reader)
    assert said.count(b"HTTP/1.1 200") == 1
    writer.close()


async def test_a_body_that_does_not_come_is_408(bare: World) -> None:
    await bare.start_gateway(api=ApiSection(body_timeout_s=0.4))
    reader, writer = await asyncio.open_connection(HOST, port_of(bare))
    writer.write(head(1000) + b'{"prompt": ')
    said = await said_until_closed(reader)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b'"code": "request_timeout"' in said
    writer.close()
    await bare.until_fleet(lambda fleet: fleet["active_requests"] == 0)


async def test_a_long_answer_outlives_the_deadlines_of_connections(bare: World) -> None:
    await bare.start_gateway(
        api=ApiSection(header_timeout_s=0.3, idle_timeout_s=0.3, body_timeout_s=0.3)
    )
    bare.decode_b.faults = [Fault.SLOW_STREAM]
    body = {"prompt": "w1", "max_tokens": 8, "stream": True}
    async with bare.http.post(COMPLETIONS, json=body) as response:
        assert "[DONE]" in await response.text()


async def test_one_address_cannot_take_all_connections(bare: World) -> None:
    await bare.start_gateway(
        api=ApiSection(max_connections=8, max_connections_each=4, header_timeout_s=3600)
    )
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        taken = []
        for _ in range(5):
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.7", 0))
            sock.setblocking(False)
            await loop.sock_connect(sock, (HOST, port_of(bare)))
            taken.append(sock)
        async with asyncio.timeout(LIMIT_S):
            assert await loop.sock_recv(taken[4], 1) == b""
        async with bare.http.get("/health") as response:
            assert response.status == 200


async def test_who_does_not_read_its_stream_loses_it_and_holds_little(bare: World) -> None:
    await bare.start_gateway(api=ApiSection(stall_timeout_s=0.5))
    bare.decode_b.faults = [Fault.ENDLESS_STREAM]
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (HOST, port_of(bare)))
    body = body_of(stream=True)
    await loop.sock_sendall(sock, head(len(body)) + body)
    await bare.until(lambda: bare.decode_b.requests)
    await bare.until_fleet(lambda fleet: fleet["active_requests"] == 0)
    await bare.until(lambda: bare.decode_b.cancelled)
    # The engine was slowed down rather than read without end.
    assert bare.decode_b.streamed_bytes < 64 << 20
    sock.close()
    assert 'code="499"' in await bare.metrics()


# What is no request


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 9000 + b"\r\n\r\n", b"400"),
        (b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n", b"400"),
        (head(5, "Content-Length: 6") + b"xxxxxx", b"400"),
        (head(5, "Transfer-Encoding: chunked") + b"zz\r\n", b"400"),
        (
            f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            "zz\r\nabc".encode(),
            b"400",
        ),
        (head(4, "Content-Encoding: gzip") + b"abcd", b"400"),
        (head(4, "Content-Encoding: br") + b"abcd", b"400"),
        (head(-1), b"400"),
    ],
)
async def test_what_is_no_request_is_400_in_openais_form(
    world: World, sent: bytes, status: bytes
) -> None:
    reader, writer = await asyncio.open_connection(HOST, port_of(world))
    writer.write(sent)
    async with asyncio.timeout(LIMIT_S):
        first = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", first)
        assert length is not None, first
        body = await reader.readexactly(int(length[1]))
    assert re.match(rb"HTTP/1\.[01] " + status + b" ", first), first
    assert b"x-request-id: " in first
    assert b"aiohttp" not in first
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    writer.close()


# Names of a request


async def test_names_of_a_request_are_passed_on_and_given_back(world: World) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    headers = {"x-request-id": "mine-1", "traceparent": parent, "tracestate": "a=1,b=2"}
    body = {"prompt": words(5), "max_tokens": 2}
    async with world.http.post(COMPLETIONS, json=body, headers=headers) as response:
        assert response.headers["x-request-id"] == "mine-1"
    for engine in (world.prefill_b, world.decode_b):
        (seen,) = engine.headers
        assert (seen["traceparent"], seen["tracestate"]) == (parent, "a=1,b=2")
        assert seen["x-request-id"] == "mine-1"


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "x" * 5000,
    ],
)
async def test_what_names_no_request_is_replaced(world: World, parent: str | None) -> None:
    headers = {"x-request-id": "a b", "tracestate": "a=1"}
    if parent is not None:
        headers["traceparent"] = parent
    body = {"prompt": words(5), "max_tokens": 2}
    async with world.http.post(COMPLETIONS, json=body, headers=headers) as response:
        request_id = response.headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f]{32}", request_id)
    seen = world.decode_b.headers[0]
    made = seen["traceparent"]
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", made)
    assert made != parent
    assert "tracestate" not in seen
    assert seen["x-request-id"] == request_id
    assert world.prefill_b.headers[0]["traceparent"] == made


# Pages of other origins


async def test_pages_of_other_origins_may_do_nothing_unless_allowed(world: World) -> None:
    asks = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    async with world.http.options(COMPLETIONS, headers=asks) as response:
        assert response.status == 405
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_allowed_pages_may_use_the_api_and_never_the_admin(bare: World) -> None:
    api = ApiSection(cors_origins=("https://chat.example",), keys_file="")
    await bare.start_gateway(api=api)
    ours = {"Origin": "https://chat.example"}
    asks = {
        **ours,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
    }
    async with bare.http.options(COMPLETIONS, headers=asks) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == "https://chat.example"
        assert "x-stainless-os" in response.headers["Access-Control-Allow-Headers"]
        assert "Access-Control-Allow-Credentials" not in response.headers
    for path, body in ((COMPLETIONS, {"prompt": "w1"}), (COMPLETIONS, {"prompt": ""})):
        async with bare.http.post(path, json=body, headers=ours) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "https://chat.example"
            assert response.headers["Vary"] == "Origin"
            assert "x-request-id" in response.headers["Access-Control-Expose-Headers"]
    stranger = {**asks, "Origin": "https://evil.example"}
    async with bare.http.options(COMPLETIONS, headers=stranger) as response:
        assert "Access-Control-Allow-Origin" not in response.headers
    async with bare.http.options("/admin/v1/policy", headers=asks) as response:
        assert response.status == 405
        assert "Access-Control-Allow-Origin" not in response.headers
    async with bare.http.get("/admin/v1/fleet", headers=ours) as response:
        assert "Access-Control-Allow-Origin" not in response.headers
