"""kill -9 of the leading gateway under load: another leads, by the same plan; streams go on."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from etcd_server import EtcdServer
from fake_engine import Fault, expected_words
from gateway_world import World
from ports import free_port
from tiny_tokenizer import words

from prfaas.config import (
    EtcdSection,
    GatewaySection,
    NodeConfig,
    NodeSection,
    render_node_config,
)
from prfaas.records import Role

TOKENS = 24  # a slow stream of some five seconds


@asynccontextmanager
async def gateway_process(world: World, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a gateway as a process of its own."""
    node = NodeSection(
        "b-gateway-9", Role.GATEWAY, "b", world.deployment, port=free_port(), state_dir=str(folder)
    )
    gateway = GatewaySection(world.model_path, threshold_tokens=100)
    config = NodeConfig(node=node, etcd=EtcdSection((world.endpoint,)), gateway=gateway)
    file = folder / "gateway.toml"
    file.write_text(render_node_config(config))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "prfaas_cli", "node", "run", "gateway", "--config", str(file)),
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_a_killed_leader_is_replaced_and_nothing_else_happens(
    shared_etcd: EtcdServer, model_path: Path, tmp_path: Path
) -> None:
    world = World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex)
    async with world, gateway_process(world, tmp_path) as first:
        await world.start_engines()

        async def leader() -> str:
            found = await world.etcd.get(f"/prfaas/{world.deployment}/leader")
            return found.value.decode() if found else ""

        async with asyncio.timeout(60):
            while await leader() != "b-gateway-9":
                assert first.returncode is None, (tmp_path / "log").read_text()
                await asyncio.sleep(0.05)
        await world.start_gateway()
        body = {"threshold_tokens": 200, "pinned": True, "why": "kept"}
        async with world.http.put("/admin/v1/plan", json=body) as response:
            assert response.status == 200

        async def plan() -> dict[str, Any]:
            async with world.http.get("/admin/v1/plan") as response:
                found: dict[str, Any] = await response.json()
                return found

        await world.until(plan, lambda found: found["leader"] == "b-gateway-9")
        before = (await plan())["plan"]
        world.decode_b.faults = [Fault.SLOW_STREAM]
        streaming = asyncio.create_task(_stream(world))
        await world.until(lambda: world.decode_b.requests)
        first.kill()
        # It takes 2.4 s: the lease of two, and a try.
        await world.until(plan, lambda found: found["is_leader"])
        after = await plan()
        assert after["plan"] == before
        assert after["threshold_tokens"] == 200
        assert await streaming == expected_words(words(10), TOKENS)
        response, _ = await world.complete(words(150, first=300))
        assert response.headers["x-prfaas-reason"] == "below_threshold"


async def _stream(world: World) -> list[str]:
    body = {"prompt": words(10), "max_tokens": TOKENS, "stream": True}
    async with world.http.post("/v1/completions", json=body) as response:
        text = await response.text()
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [event.split('"text": "')[1].split(" ")[0] for event in events[:-1]]
