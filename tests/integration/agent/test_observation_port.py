"""The agent's /metrics and /signals, over real lanes and a real counters' socket."""

import asyncio
import contextlib
import json
import socket
import ssl
import statistics
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from certificates import Certificates
from lane_pair import LanePair
from prometheus_client.parser import text_string_to_metric_families

from prfaas.config import NodeConfig, NodeSection, SecurityMode, SecuritySection
from prfaas.errors import PreflightError
from prfaas.records import Role
from prfaas.transfer.node_signals import NodeSignals
from prfaas_agent import observation_port
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.metric_table import ALL
from prfaas_agent.observation_port import observed
from prfaas_transport import serve_stats
from prfaas_transport.tls_context import TlsContexts, TlsFiles

HOST = "127.0.0.1"


def config(security: SecuritySection | None = None, port: int = 0) -> NodeConfig:
    node = NodeSection("a-prefill-0", Role.PREFILL, "a", "demo", HOST, agent_port=port)
    return NodeConfig(node=node, security=security or SecuritySection())


@asynccontextmanager
async def port_of(path: Path, security: SecuritySection | None = None) -> AsyncIterator[str]:
    """Serve what comes from a socket; yields `host:port`, once the first counters are there."""
    stats = EngineStats(path, node="a-prefill-0")
    async with observed(config(security), stats) as port:
        async with asyncio.timeout(10):
            while not stats.is_fresh:
                await stats.wait_changed(1.0)
        yield f"{HOST}:{port}"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def scrape(http: aiohttp.ClientSession, where: str) -> dict[tuple[str, str], float]:
    """Return every sample by name and labels."""
    async with http.get(f"http://{where}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())))
            assert key not in samples
            samples[key] = sample.value
    return samples


async def test_both_ends_of_a_transfer_can_be_scraped(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with LanePair(tmp_path) as pair:
        async with port_of(pair.send_socket) as sender, port_of(pair.receive_socket) as receiver:
            await asyncio.to_thread(pair.transfer, rooms=3)
            await asyncio.to_thread(pair.fail_room)
            await asyncio.sleep(0.7)
            sent, received = await scrape(http, sender), await scrape(http, receiver)
    for samples in (sent, received):
        assert samples["prfaas_transfer_engine_up", ""] == 1
        assert samples["prfaas_transfer_counters_age_seconds", ""] < 0.5 + 1.0
        assert samples["prfaas_transfer_node_info", "node=a-prefill-0,region=a"] == 1
        assert samples["prfaas_transfer_rooms_total", "outcome=done,reason="] == 3
        assert samples["prfaas_transfer_rooms_total", "outcome=failed,reason=aborted"] == 1
        labels = "outcome=done,priority=foreground"
        assert samples["prfaas_transfer_room_seconds_count", labels] == 3
        assert 0 < samples["prfaas_transfer_room_seconds_sum", labels] < 10
        assert samples["prfaas_transfer_room_seconds_bucket", f"le=+Inf,{labels}"] == 3
        assert samples["prfaas_transfer_room_bytes_sum", labels] == 3 * pair.room_bytes
        assert samples["prfaas_transfer_first_byte_seconds_count", labels] == 3
    assert sent["prfaas_transfer_peer_lanes", "peer=b-decode-0/0"] == 4
    assert received["prfaas_transfer_peer_lanes", "peer=a-prefill-0/0"] == 4
    assert sent["prfaas_transfer_payload_sent_bytes_total", ""] >= 3 * pair.room_bytes
    assert sent["prfaas_transfer_rtt_seconds", "peer=b-decode-0/0"] > 0
    assert sent["prfaas_transfer_path_up", "peer=b-decode-0/0"] == 1
    assert sent["prfaas_transfer_chunk_ack_seconds_count", "peer=b-decode-0/0"] > 0
    states = [
        sent["prfaas_transfer_congestion", f"peer=b-decode-0/0,state={state}"]
        for state in ("none", "building", "congested")
    ]
    assert sum(states) == 1
    known = {metric.full_name for metric in ALL}
    for name, _ in (*sent, *received):
        base = name
        for suffix in ("_bucket", "_sum", "_count"):
            base = base.removesuffix(suffix)
        assert base in known, name


async def test_a_silent_engine_shows_and_its_old_values_do_not(
    tmp_path: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prfaas_agent.engine_stats.STALE_S", 0.3)
    path = tmp_path / "s"
    server = serve_stats(path, lambda: {"rooms_open": 1})
    async with port_of(path) as where:
        assert ("prfaas_transfer_rooms_open", "") in await scrape(http, where)
        await asyncio.to_thread(server.close)
        await asyncio.sleep(0.4)
        gone = await scrape(http, where)
        assert gone["prfaas_transfer_engine_up", ""] == 0
        assert ("prfaas_transfer_rooms_open", "") not in gone
        server = serve_stats(path, lambda: {"rooms_open": 2})  # the next engine
        async with asyncio.timeout(5):
            while (await scrape(http, where)).get(("prfaas_transfer_rooms_open", "")) != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    await asyncio.to_thread(server.close)


async def test_signals_are_never_older_than_half_a_second(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    loop = asyncio.get_running_loop()
    with LanePair(tmp_path) as pair:
        async with (
            port_of(pair.send_socket) as where,
            http.get(f"http://{where}/signals") as response,
        ):
            assert response.content_type == "application/x-ndjson"
            await asyncio.to_thread(pair.transfer, rooms=1)
            ages = []
            began_s = heard_s = loop.time()
            while loop.time() - began_s < 2.0:
                line = NodeSignals.from_line(await response.content.readline())
                assert line.age_s is not None
                ages.append(line.age_s + loop.time() - heard_s)  # just before this one
                heard_s = loop.time()
            assert line.peers["b-decode-0/0"].available_bytes_per_s > 0
            assert line.node == "a-prefill-0"
    assert len(ages) >= 6
    assert statistics.median(ages[1:]) <= 0.5
    assert max(ages[1:]) <= 0.5 + 1.0  # what a busy machine adds


async def test_a_reader_that_does_not_read_is_dropped(
    tmp_path: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_port, "STALL_S", 0.5)
    monkeypatch.setattr(observation_port, "_SEND_BUFFER_BYTES", 4096)
    signals = {"rtt_s": 0.02, "is_up": True}
    peers = {f"b-decode-{n}/0": {"lanes": 1, "signals": signals} for n in range(40)}
    server = serve_stats(tmp_path / "s", lambda: {"peers": peers})
    async with port_of(tmp_path / "s") as where:
        host, _, port = where.partition(":")
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect((host, int(port)))
            stalled.sendall(b"GET /signals HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(20), http.get(f"http://{where}/signals") as response:
                for _ in range(12):  # others are served meanwhile
                    line = NodeSignals.from_line(await response.content.readline())
                    assert len(line.peers) == 40
            stalled.settimeout(5)
            async with asyncio.timeout(10):
                got_bytes = await asyncio.to_thread(read_all, stalled)
            assert got_bytes < 6 * len(line.to_line())
    await asyncio.to_thread(server.close)


def read_all(sock: socket.socket) -> int:
    """Read until the other side has ended the connection; return how many bytes came."""
    num_bytes = 0
    while part := sock.recv(1 << 16):
        num_bytes += len(part)
        if num_bytes > 10 << 20:
            raise AssertionError("it was not dropped")
    return num_bytes


def session_from(address: str) -> aiohttp.ClientSession:
    """Return a client that dials from an address of loopback."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0)))


def held() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


async def test_a_hundred_gateways_leave_nothing_behind(tmp_path: Path) -> None:
    server = serve_stats(tmp_path / "s", lambda: {"peers": {}})
    async with port_of(tmp_path / "s") as where:
        before = held()
        refused = 0
        async with AsyncExitStack() as stack:
            for number in range(10):
                http = await stack.enter_async_context(session_from(f"127.0.0.{number + 1}"))
                for _ in range(10):
                    opened = http.get(f"http://{where}/signals")
                    response = await stack.enter_async_context(opened)
                    refused += response.status == 503
        assert refused == 100 - observation_port.MAX_STREAMS
        async with asyncio.timeout(5):
            while held() != before:  # noqa: ASYNC110 - what is waited for is the kernel
                await asyncio.sleep(0.05)
        async with aiohttp.ClientSession() as http:
            response = await http.get(f"http://{where}/signals")
            assert response.status == 200
            response.close()
    await asyncio.to_thread(server.close)


async def test_a_connection_that_asks_for_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_port, "FIRST_REQUEST_S", 0.2)
    server = serve_stats(tmp_path / "s", dict)
    async with port_of(tmp_path / "s") as where:
        host, _, port = where.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(3):
            assert await reader.read() == b""
        writer.close()
    await asyncio.to_thread(server.close)


async def test_a_connection_that_asks_once_and_then_half_a_time_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation_port, "NEXT_REQUEST_S", 0.3)
    server = serve_stats(tmp_path / "s", dict)
    async with port_of(tmp_path / "s") as where:
        host, _, port = where.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nHEAD /metrics HTTP/1.1\r\n")
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1
        writer.close()
    await asyncio.to_thread(server.close)


async def test_one_address_cannot_take_all_streams(tmp_path: Path) -> None:
    server = serve_stats(tmp_path / "s", lambda: {"peers": {}})
    most = observation_port.MAX_STREAMS_EACH
    async with port_of(tmp_path / "s") as where, AsyncExitStack() as stack:
        greedy = await stack.enter_async_context(session_from("127.0.0.2"))
        statuses = [
            (await stack.enter_async_context(greedy.get(f"http://{where}/signals"))).status
            for _ in range(most + 2)
        ]
        assert statuses == [200] * most + [503] * 2
        other = await stack.enter_async_context(session_from("127.0.0.3"))
        response = await stack.enter_async_context(other.get(f"http://{where}/signals"))
        assert response.status == 200
    await asyncio.to_thread(server.close)


@pytest.mark.parametrize("says", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_one_address_cannot_take_all_connections(tmp_path: Path, says: bytes) -> None:
    server = serve_stats(tmp_path / "s", dict)
    async with port_of(tmp_path / "s") as where, AsyncExitStack() as stack:
        host, _, port = where.partition(":")
        for _ in range(observation_port.MAX_CONNECTIONS + 10):
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.2", 0))
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
            with contextlib.suppress(ConnectionError):  # it was refused already
                await asyncio.get_running_loop().sock_sendall(sock, says)
        async with session_from("127.0.0.3") as other:
            assert (await other.get(f"http://{where}/metrics")).status == 200
        async with session_from("127.0.0.2") as greedy:
            with pytest.raises(aiohttp.ClientError):
                await greedy.get(f"http://{where}/metrics")
    await asyncio.to_thread(server.close)


async def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        stats = EngineStats(tmp_path / "s", node="a-prefill-0")
        with pytest.raises(PreflightError, match="agent_port"):
            async with observed(config(port=port), stats):
                pass


async def test_with_tls_on_nobody_sees_anything_without_a_certificate(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    certs = Certificates(tmp_path / "certs", "demo")
    for name in ("a-prefill-0", "b-gateway-0"):
        certs.node(name, region=name[0], addresses=(HOST,))
    own = certs.files("a-prefill-0")
    security = SecuritySection(SecurityMode.MTLS, str(own.ca), str(own.cert), str(own.key))
    foreign = Certificates(tmp_path / "foreign", "demo").node("b-gateway-0")
    mixed = TlsFiles(ca=own.ca, cert=foreign.cert, key=foreign.key)
    nameless = ssl.create_default_context(cafile=str(own.ca))
    server = serve_stats(tmp_path / "s", lambda: {"rooms_open": 1})
    async with port_of(tmp_path / "s", security) as where:
        for path in ("/metrics", "/signals"):
            for tls in (nameless, TlsContexts(mixed).http_client()):
                with pytest.raises(aiohttp.ClientError):
                    await http.get(f"https://{where}{path}", ssl=tls)
            with pytest.raises(aiohttp.ClientError):
                await http.get(f"http://{where}{path}")
            tls = TlsContexts(certs.files("b-gateway-0")).http_client()
            response = await http.get(f"https://{where}{path}", ssl=tls)
            assert response.status == 200
            assert await response.content.readline()
            response.close()
    await asyncio.to_thread(server.close)


async def test_a_certificate_of_another_deployment_is_refused(
    tmp_path: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    certs = Certificates(tmp_path / "certs", "other")
    own = certs.node("a-prefill-0", addresses=(HOST,))
    security = SecuritySection(SecurityMode.MTLS, str(own.ca), str(own.cert), str(own.key))
    server = serve_stats(tmp_path / "s", dict)
    async with port_of(tmp_path / "s", security) as where:  # the node is of deployment demo
        tls = TlsContexts(own).http_client()
        for path in ("/metrics", "/signals"):
            async with http.get(f"https://{where}{path}", ssl=tls) as response:
                assert response.status == 403
    await asyncio.to_thread(server.close)


async def test_lines_that_are_no_counters_do_not_end_the_agent(tmp_path: Path) -> None:
    lines = [b"[]\n", b"{\n", json.dumps({"peers": {"p": {"signals": {"rtt_s": -1}}}}).encode()]

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((lines.pop(0) if lines else b'{"rooms_open": 4}') + b"\n")
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_unix_server(answer, tmp_path / "s"),
        port_of(tmp_path / "s") as where,
        aiohttp.ClientSession() as http,
    ):
        assert (await scrape(http, where))["prfaas_transfer_rooms_open", ""] == 4
