"""Keys files and certificates in odd states, bodies that never come, and too many at a time."""

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from certificates import Certificates
from etcd_server import EtcdServer
from gateway_world import World

from prfaas.api_section import ApiSection
from prfaas.errors import ConfigError
from prfaas_gateway import key_book
from prfaas_gateway.key_book import KeyBook
from prfaas_gateway.public_tls import PublicTls


@pytest.fixture
async def bare(shared_etcd: EtcdServer, model_path: Path) -> AsyncIterator[World]:
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        yield world


async def test_a_pipe_is_no_keys_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.toml")
    with pytest.raises(ConfigError, match="not a file"):
        KeyBook(tmp_path / "keys.toml")


async def test_a_keys_file_that_is_away_is_told_once_and_its_return_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_book, "CHECK_S", 0.0)
    file = tmp_path / "keys.toml"
    file.write_text("")
    book = KeyBook(file)
    file.rename(tmp_path / "away")
    caplog.set_level(logging.INFO)
    for _ in range(5):
        assert book.find("x") is None
    assert len(caplog.records) == 1
    (tmp_path / "away").rename(file)
    book.find("x")
    assert "0 keys in use" in caplog.text


def test_a_certificate_that_does_not_fit_is_told_once_for_all_handshakes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certs = Certificates(tmp_path / "certs", "demo")
    one, other = certs.node("a-0"), certs.node("b-0")
    key = tmp_path / "key"
    key.write_bytes(Path(one.key).read_bytes())
    tls = PublicTls(ApiSection(cert=str(one.cert), key=str(key)))
    key.write_bytes(Path(other.key).read_bytes())
    for _ in range(5):
        tls._refresh()
    assert len([r for r in caplog.records if "stay in use" in r.message]) == 1
    key.write_bytes(Path(one.key).read_bytes())
    tls._refresh()
    key.write_bytes(Path(other.key).read_bytes())
    tls._refresh()
    assert len([r for r in caplog.records if "stay in use" in r.message]) == 2


async def begun(
    world: World, path: str, method: str = "POST"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the head of a request and no more."""
    host, port = world.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def test_a_move_whose_body_does_not_come_is_408(bare: World) -> None:
    await bare.start_gateway(api=ApiSection(body_timeout_s=0.3))
    reader, writer = await begun(bare, "/admin/v1/moves", "PUT")
    async with asyncio.timeout(10):
        assert b" 408 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_texts_to_tokenize_have_their_places_too(bare: World, path: str) -> None:
    """Each may hold a body of the longest: without a limit they would hold all memory."""
    await bare.start_gateway(max_concurrent_requests=1)
    reader, writer = await begun(bare, path)
    await bare.until_fleet(lambda fleet: fleet["active_requests"] == 1)
    async with bare.http.post(path, json={"prompt": "w1", "tokens": [1]}) as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "overloaded"
    assert not reader.at_eof()
    writer.close()
