"""A gateway that says what cannot be of its demand is left out, and keeps nobody from planning."""

import json
from types import SimpleNamespace
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from prfaas.planning.demand_book import DemandSeen
from prfaas.records import NodeRecord, Role
from prfaas.workload.sketch import HistogramLengths
from prfaas_gateway.peer_demand import DEMAND_PATH, PeerDemand

OWN = DemandSeen(2.0, HistogramLengths(np.array([10.0, 20.0]), np.ones(2)), 5.0, 7.0)


def changed(**changes: Any) -> str:
    return json.dumps({"demand": dict(OWN.to_json()) | changes})


@pytest.mark.parametrize(
    "says",
    [
        "[" * 100_000,
        "[]",
        changed(requests=0.0),
        changed(requests=float("nan")),
        changed(rate_per_s=-1),
        changed(output_tokens=10**400),
        changed(lengths=[20, 10]),
        changed(weights=[-1, 1]),
        changed(weights=[[1], [1]]),
        changed(lengths=[], weights=[]),
    ],
)
async def test_what_cannot_be_is_left_out(says: str) -> None:
    async def demand(_request: web.Request) -> web.Response:
        return web.Response(text=says, content_type="application/json")

    app = web.Application()
    app.router.add_get(DEMAND_PATH, demand)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        peer = NodeRecord("b-1", Role.GATEWAY, "b", str(server.make_url("")).rstrip("/"), "s")
        fleet: Any = SimpleNamespace(region="b", view=SimpleNamespace(nodes={"b-1": peer}))
        assert await PeerDemand(session, fleet, "b-0").demand(OWN) is not None
        seen = await PeerDemand(session, fleet, "b-0").demand(OWN)
        alone = await PeerDemand(session, fleet, "b-1").demand(OWN)
    assert seen is not None
    assert alone is not None
    assert seen.to_json() == alone.to_json()
