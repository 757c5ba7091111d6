import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp
import pytest
from etcd_server import EtcdServer
from fake_engine import Fault
from gateway_world import World
from tiny_tokenizer import words

from prfaas.config import EtcdSection, GatewaySection, NodeConfig, NodeSection
from prfaas.errors import PreflightError
from prfaas.keys import node_key
from prfaas.records import Role
from prfaas_gateway import new_event_loop, run_gateway, serving


def config_of(
    endpoint: str, model_path: Path, *, deployment: str, port: int = 0, listen_fd: int = -1
) -> NodeConfig:
    return NodeConfig(
        node=NodeSection("b-gateway-0", Role.GATEWAY, "b", deployment, port=port),
        etcd=EtcdSection((endpoint,)),
        gateway=GatewaySection(str(model_path), threshold_tokens=100, listen_fd=listen_fd),
    )


async def test_sigterm_finishes_running_streams_and_takes_no_new_ones(
    shared_etcd: EtcdServer, model_path: Path
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = config_of(
        shared_etcd.endpoint, model_path, deployment="term", listen_fd=listener.detach()
    )
    async with World(shared_etcd.endpoint, str(model_path), deployment="term") as world:
        await world.start_engines()
        world.decode_b.faults = [Fault.SLOW_STREAM]
        async with asyncio.TaskGroup() as group, aiohttp.ClientSession(url) as http:
            running = group.create_task(run_gateway(config))
            world.http = http
            await world.until_fleet(lambda fleet: len(fleet["nodes"]) == 4)
            assert await world.etcd.get(node_key("term", "b-gateway-0")) is not None
            body = {"prompt": words(5), "max_tokens": 5, "stream": True}
            async with http.post("/v1/completions", json=body) as response:
                await response.content.readany()
                os.kill(os.getpid(), signal.SIGTERM)
                text = await response.text()
            assert "[DONE]" in text
            await asyncio.wait_for(running, 5)
            with pytest.raises(aiohttp.ClientConnectorError):
                await http.get("/health")
        assert await world.etcd.get(node_key("term", "b-gateway-0")) is None


async def test_a_port_in_use_is_named(shared_etcd: EtcdServer, model_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_of(shared_etcd.endpoint, model_path, deployment="x", port=port)
        with pytest.raises(PreflightError, match=str(port)):
            await run_gateway(config)


async def test_a_bad_listen_fd_is_named(shared_etcd: EtcdServer, model_path: Path) -> None:
    config = config_of(shared_etcd.endpoint, model_path, deployment="x", listen_fd=987)
    with pytest.raises(PreflightError, match="listen_fd = 987"):
        await run_gateway(config)


def test_it_runs_on_the_loop_that_it_recommends(shared_etcd: EtcdServer, model_path: Path) -> None:
    async def main() -> int:
        config = config_of(shared_etcd.endpoint, model_path, deployment="loop")
        async with serving(config) as url, aiohttp.ClientSession(url) as http:
            async with asyncio.timeout(5):
                while True:
                    async with http.get("/admin/v1/fleet") as response:
                        fleet = await response.json()
                    if fleet["etcd"]["synced"] and fleet["nodes"]:
                        break
                    await asyncio.sleep(0.05)
            async with http.get("/health") as response:
                return response.status

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert "uvloop" in type(runner.get_loop()).__module__
        assert runner.run(main()) == 200
