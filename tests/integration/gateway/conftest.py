import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from etcd_server import EtcdServer
from gateway_world import World
from tiny_tokenizer import make_tokenizer

from prfaas_coord import EtcdClient


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    """An etcd of the test's own, to kill and rob."""
    server = EtcdServer(tmp_path / "etcd")
    await server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One etcd for all tests that leave it alone; each uses a deployment of its own."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd") / "data")
    asyncio.run(server.start())
    yield server
    server.kill()


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokenizer(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def client(etcd: EtcdServer) -> AsyncIterator[EtcdClient]:
    async with EtcdClient([etcd.endpoint], call_timeout_s=1.0) as client:
        yield client


@pytest.fixture
async def world(shared_etcd: EtcdServer, model_path: Path) -> AsyncIterator[World]:
    """Prefills in regions a and b, a decode in b, a gateway in b with a threshold of 100."""
    async with World(shared_etcd.endpoint, str(model_path), deployment=uuid.uuid4().hex) as world:
        await world.start_engines()
        await world.start_gateway()
        yield world
