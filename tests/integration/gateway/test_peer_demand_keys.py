"""A gateway that wants keys and TLS still tells the leader of its region what it sees."""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
from certificates import Certificates
from etcd_server import EtcdServer
from gateway_world import World
from tiny_tokenizer import words

from prfaas.api_keys import KeyEntry, KeyRole, key_digest, render_keys
from prfaas.api_section import ApiSection
from prfaas.records import NodeRecord, Role
from prfaas_gateway.peer_demand import PeerDemand


async def test_demand_is_told_to_who_knows_the_session(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    files = Certificates(tmp_path / "certs").node("b-gateway-0", addresses=("api.example",))
    keys = tmp_path / "keys.toml"
    keys.write_text(render_keys({"root": KeyEntry(key_digest("pfs-root"), KeyRole.ADMIN)}))
    api = ApiSection(keys_file=str(keys), cert=str(files.cert), key=str(files.key))
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        await world.start_gateway(api=api, key="pfs-root")
        response, _ = await world.complete(words(5))
        assert response.status == 200
        known = await world.node("b-gateway-0")
        async with aiohttp.ClientSession() as http:

            async def seen(session: str) -> Any:
                record = NodeRecord("b-gateway-0", Role.GATEWAY, "b", world.url, session)
                view = SimpleNamespace(nodes={record.name: record})
                fleet = cast("Any", SimpleNamespace(view=view, region="b"))
                return await PeerDemand(http, fleet, "b-gateway-1").demand(None)

            assert await seen(known["session"]) is not None
            assert await seen("guessed") is None
