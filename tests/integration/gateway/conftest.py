import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from etcd_server import EtcdServer  # noqa: E402

from prfaas_coord import EtcdClient  # noqa: E402


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    server = EtcdServer(tmp_path / "etcd")
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def client(etcd: EtcdServer) -> AsyncIterator[EtcdClient]:
    async with EtcdClient([etcd.endpoint], call_timeout_s=1.0) as client:
        yield client
