"""Be a registered member of the deployment for as long as a block runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prfaas.config import NodeConfig
from prfaas.records import NodeRecord
from prfaas_coord import EtcdClient, Membership


@asynccontextmanager
async def registered(config: NodeConfig, record: NodeRecord) -> AsyncIterator[None]:
    """Keep `record` in etcd under a lease; an etcd that is away only delays it."""
    async with (
        EtcdClient.of(config) as client,
        Membership(client, config.node.deployment).register(record, ttl_s=config.etcd.lease_ttl_s),
    ):
        yield
