"""API keys at a gateway: who may ask what, how much of it, and whose the requests are."""

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from etcd_server import EtcdServer
from fake_engine import Fault
from gateway_world import World
from tiny_tokenizer import words

from prfaas.api_keys import KeyEntry, KeyRole, key_digest, render_keys
from prfaas.api_section import ApiSection
from prfaas.errors import ConfigError
from prfaas.records import Role

COMPLETIONS = "/v1/completions"
ADMIN = "pfs-admin-key"
ENTRIES = {
    "root": KeyEntry(key_digest(ADMIN), KeyRole.ADMIN),
    "alice": KeyEntry(key_digest("pfs-alice"), tenant="acme"),
    "bob": KeyEntry(key_digest("pfs-bob")),
    "front": KeyEntry(key_digest("pfs-front"), tenant="*"),
    "prometheus": KeyEntry(key_digest("pfs-prometheus"), KeyRole.METRICS),
}


class Keyed:
    """A world whose gateway has a keys file."""

    def __init__(self, world: World, file: Path) -> None:
        self.world = world
        self.file = file

    def write(self, **changes: KeyEntry | None) -> None:
        found = {**ENTRIES, **changes}
        kept = {name: entry for name, entry in found.items() if entry is not None}
        temporary = self.file.with_suffix(".new")
        temporary.write_text(render_keys(kept))
        temporary.replace(self.file)

    async def ask(
        self, key: str | None, path: str = COMPLETIONS, *, method: str = "", **fields: Any
    ) -> tuple[int, dict[str, Any], aiohttp.ClientResponse]:
        """Return status, JSON and response of one request with a key and no other header."""
        headers = fields.pop("headers", {})
        if key is not None:
            headers = {**headers, "Authorization": f"Bearer {key}"}
        method = method or ("POST" if path == COMPLETIONS else "GET")
        body = {"prompt": words(5), "max_tokens": 2, **fields} if method != "GET" else None
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, self.world.url + path, json=body, headers=headers) as response,
        ):
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else {}, response

    async def until_status(self, key: str, status: int) -> None:
        async def found() -> bool:
            return (await self.ask(key))[0] == status

        await self.world.until(found)


@pytest.fixture
async def keyed(shared_etcd: EtcdServer, model_path: Path, tmp_path: Path) -> AsyncIterator[Keyed]:
    """Regions b and c are in the EU, a is not."""
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    keyed = Keyed(world, tmp_path / "keys.toml")
    keyed.write()
    async with world:
        await world.add_engine(Role.PREFILL, "a", "a-prefill-0")
        await world.add_engine(Role.PREFILL, "b", "b-prefill-0", residency=("eu",))
        await world.add_engine(Role.DECODE, "b", "b-decode-0", residency=("eu",))
        await world.start_gateway(api=ApiSection(keys_file=str(keyed.file)), key=ADMIN)
        yield keyed


@pytest.mark.parametrize("key", [None, "", "pfs-nobody", "pfs-alice2", "x" * 4000, "pfs-älice"])
async def test_who_has_no_key_is_refused_in_openais_form(keyed: Keyed, key: str | None) -> None:
    for path in (COMPLETIONS, "/v1/models", "/metrics", "/admin/v1/fleet", "/nothing"):
        status, answer, response = await keyed.ask(key, path)
        assert status == 401, path
        assert answer["error"]["code"] == "invalid_api_key"
        assert answer["error"]["type"] == "invalid_request_error"
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "Retry-After" not in response.headers
    assert not keyed.world.decode_b.requests
    assert 'code="401"' in await keyed.world.metrics()


@pytest.mark.parametrize("header", ["pfs-alice", "Basic pfs-alice", "Bearer", "bearerpfs-alice"])
async def test_other_schemes_are_no_key(keyed: Keyed, header: str) -> None:
    status, _, _ = await keyed.ask(None, headers={"Authorization": header})
    assert status == 401


async def test_each_role_may_do_its_own_only(keyed: Keyed) -> None:
    plan = {"dry_run": True, "threshold_tokens": 5}
    expected = {
        "pfs-alice": (200, 200, 403, 403, 403),
        "pfs-prometheus": (403, 403, 200, 403, 403),
        ADMIN: (200, 200, 200, 200, 200),
    }
    for key, statuses in expected.items():
        found = [
            (await keyed.ask(key))[0],
            (await keyed.ask(key, "/v1/models"))[0],
            (await keyed.ask(key, "/metrics"))[0],
            (await keyed.ask(key, "/admin/v1/fleet"))[0],
        ]
        async with keyed.world.http.put(
            "/admin/v1/plan", json=plan, headers={"Authorization": f"bearer {key}"}
        ) as response:
            found.append(response.status)
        assert tuple(found) == statuses, key
    status, answer, _ = await keyed.ask("pfs-bob", "/admin/v1/fleet")
    assert (status, answer["error"]["code"]) == (403, "not_allowed")
    for path in ("/health", "/ready"):
        assert (await keyed.ask(None, path))[0] == 200


async def test_a_tenant_is_its_keys_and_not_its_headers(keyed: Keyed) -> None:
    world = keyed.world
    async with world.http.put("/admin/v1/policy", json={"tenants": {"acme": "eu"}}) as response:
        assert response.status == 200

    async def prefill(key: str, **headers: str) -> tuple[int, str]:
        names = {f"x-prfaas-{name}": value for name, value in headers.items()}
        long = words(500, first=len(world.decode_b.requests))
        status, answer, response = await keyed.ask(key, prompt=long, headers=names)
        return status, response.headers.get("x-prfaas-prefill", "") or answer["error"]["code"]

    assert await prefill("pfs-alice") == (200, "b-prefill-0")
    assert await prefill("pfs-alice", tenant="acme") == (200, "b-prefill-0")
    assert await prefill("pfs-alice", tenant="other") == (403, "not_allowed")
    assert await prefill("pfs-alice", residency="us") == (403, "residency")
    assert await prefill("pfs-bob") == (200, "a-prefill-0")
    assert await prefill("pfs-bob", tenant="acme") == (403, "not_allowed")
    assert await prefill("pfs-front", tenant="acme") == (200, "b-prefill-0")
    assert await prefill("pfs-front", tenant="other") == (200, "a-prefill-0")


async def test_keys_are_taken_up_and_dropped_without_a_restart(keyed: Keyed) -> None:
    keyed.write(carol=KeyEntry(key_digest("pfs-carol")), bob=None)
    await keyed.until_status("pfs-carol", 200)
    assert (await keyed.ask("pfs-bob"))[0] == 401
    keyed.file.write_text("[keys\n")
    await asyncio.sleep(0.6)
    assert (await keyed.ask("pfs-carol"))[0] == 200
    keyed.file.unlink()
    await asyncio.sleep(0.6)
    assert (await keyed.ask("pfs-carol"))[0] == 200
    # Without any key the gateway is closed, not open.
    keyed.file.write_text("")
    await keyed.until_status("pfs-carol", 401)
    assert (await keyed.ask(None))[0] == 401


async def test_requests_per_second_are_limited_per_key(keyed: Keyed) -> None:
    keyed.write(bob=replace(ENTRIES["bob"], requests_per_s=0.01))
    await keyed.until_status("pfs-bob", 429)
    status, answer, response = await keyed.ask("pfs-bob")
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer["error"]["type"] == "rate_limit_error"
    assert 90 <= int(response.headers["Retry-After"]) <= 100
    assert (await keyed.ask("pfs-alice"))[0] == 200
    # What is used up stays used up while another key changes.
    keyed.write(bob=replace(ENTRIES["bob"], requests_per_s=0.01), carol=None, alice=None)
    await keyed.until_status("pfs-alice", 401)
    assert (await keyed.ask("pfs-bob"))[0] == 429


async def test_concurrent_requests_are_limited_per_key(keyed: Keyed) -> None:
    keyed.write(bob=replace(ENTRIES["bob"], concurrent_requests=1), alice=None)
    await keyed.until_status("pfs-alice", 401)
    keyed.world.decode_b.faults = [Fault.SLOW_STREAM]
    headers = {"Authorization": "Bearer pfs-bob"}
    body = {"prompt": words(5), "max_tokens": 8, "stream": True}
    async with keyed.world.http.post(COMPLETIONS, json=body, headers=headers) as response:
        assert response.status == 200
        await response.content.readany()
        status, answer, refused = await keyed.ask("pfs-bob")
        assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused.headers["Retry-After"] == "1"
        assert "[DONE]" in await response.text()
    await keyed.until_status("pfs-bob", 200)


async def test_tokens_of_prompts_and_answers_are_limited_per_key(keyed: Keyed) -> None:
    keyed.write(bob=replace(ENTRIES["bob"], tokens_per_minute=60), alice=None)
    await keyed.until_status("pfs-alice", 401)
    # A prompt longer than a minute's tokens is served when nothing is used, and paid afterwards.
    assert (await keyed.ask("pfs-bob", prompt=words(80), max_tokens=4))[0] == 200
    status, answer, response = await keyed.ask("pfs-bob", prompt=words(10))
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 25 <= int(response.headers["Retry-After"]) <= 34
    assert "60 tokens/min" in answer["error"]["message"]


async def test_keys_are_in_no_log_and_no_decision(
    keyed: Keyed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert (await keyed.ask("pfs-alice"))[0] == 200
    assert (await keyed.ask("pfs-mistyped"))[0] == 401
    keyed.write(bob=None)
    await keyed.until_status("pfs-bob", 401)
    shown = caplog.text + await keyed.world.metrics()
    for path in ("/admin/v1/fleet", "/admin/v1/decisions"):
        shown += str((await keyed.ask(ADMIN, path))[1])
    for key in ("pfs-alice", "pfs-mistyped", "pfs-bob", ADMIN):
        assert key not in shown
        assert key_digest(key) not in shown
    for leg in keyed.world.decode_b.requests:
        assert "pfs-" not in str(leg)


async def test_a_keys_file_that_is_none_stops_the_start(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    async with World(shared_etcd.endpoint, str(model_path), deployment="nokeys") as world:
        for file, text in (("absent", None), ("bad", '[keys.a]\nsha256 = "pfs-plain"')):
            path = tmp_path / file
            if text:
                path.write_text(text)
            with pytest.raises(ConfigError, match=str(path)):
                await world.start_gateway(api=ApiSection(keys_file=str(path)), wait=False)


async def test_without_keys_only_this_machine_changes_things(world: World) -> None:
    async with world.http.put("/admin/v1/policy", json={"threshold_tokens": 5}) as response:
        assert response.status == 200


async def test_without_keys_pages_in_a_browser_change_nothing(world: World) -> None:
    headers = {"Origin": world.url}  # as after DNS rebinding
    body = {"threshold_tokens": 5}
    async with world.http.put("/admin/v1/policy", json=body, headers=headers) as response:
        assert response.status == 403


async def test_without_keys_strangers_change_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, status in (
        ("10.1.2.3", 403),
        ("::ffff:10.1.2.3", 403),
        (None, 403),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
    ):
        monkeypatch.setattr("aiohttp.web.BaseRequest.remote", address)
        for path, body in (
            ("/admin/v1/policy", {"threshold_tokens": 5}),
            ("/admin/v1/plan", {"dry_run": True}),
        ):
            async with world.http.put(path, json=body) as response:
                assert response.status == status, (address, await response.text())
        async with world.http.get("/admin/v1/fleet") as response:
            assert response.status == 200
        assert (await world.complete(words(3)))[0].status == 200


async def test_gateways_tell_each_other_their_demand(keyed: Keyed) -> None:
    path = "/admin/v1/demand"
    session = (await keyed.world.node("b-gateway-0"))["session"]
    assert (await keyed.ask(None, path))[0] == 401
    assert (await keyed.ask(None, path, headers={"x-prfaas-session": "x"}))[0] == 401
    assert (await keyed.ask(None, path, headers={"x-prfaas-session": session}))[0] == 200
    other = {"x-prfaas-session": session}
    assert (await keyed.ask(None, "/admin/v1/fleet", headers=other))[0] == 401
