"""The agent tells of single transfers, over real lanes and a real counters' socket."""

import asyncio
import time
from pathlib import Path

import aiohttp
from lane_pair import LanePair

from prfaas.config import NodeConfig, NodeSection
from prfaas.records import Role
from prfaas_agent.engine_stats import EngineStats
from prfaas_agent.observation_port import observed
from prfaas_transport import RoomSent


async def test_a_transfer_that_ended_is_told_by_its_room(tmp_path: Path) -> None:
    with LanePair(tmp_path) as pair:
        began_s = time.time()
        await asyncio.to_thread(pair.transfer, rooms=2)
        rooms = [event.room for event in pair.events if isinstance(event, RoomSent)]
        assert len(rooms) == 2
        stats = EngineStats(pair.send_socket, node="a-prefill-0")
        config = NodeConfig(node=NodeSection("a-prefill-0", Role.PREFILL, "a"))
        async with observed(config, stats) as port, aiohttp.ClientSession() as http:
            url = f"http://127.0.0.1:{port}/rooms"
            async with asyncio.timeout(20):
                while stats.rooms.find(rooms[-1]) is None:
                    await stats.wait_changed(1.0)
            for room in rooms:
                async with http.get(f"{url}/{room}") as response:
                    told = await response.json()
                assert told["bytes"] == pair.room_bytes
                assert told["reason"] == ""
                times_s = [told[name] for name in ("opened_at_s", "first_byte_at_s", "ended_at_s")]
                assert sorted(times_s) == times_s
                assert began_s - 0.1 < times_s[0]
                assert times_s[-1] < time.time() + 0.1
            for unknown in (f"{url}/999", f"{url}/x", f"{url}/{'9' * 30}"):
                async with http.get(unknown) as response:
                    assert response.status == 404
