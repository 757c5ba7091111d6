"""Be a registered member of the deployment for as long as a block runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from prfaas.config import NodeConfig
from prfaas.errors import ConfigError, StateError
from prfaas.keys import nodes_prefix
from prfaas.pairing import layout_problem
from prfaas.records import NodeRecord, Role
from prfaas_coord import EtcdClient, EtcdError, Membership, Registration
from prfaas_coord.wishes import read_wish

PUBLISH_TIMEOUT_S = 5.0


class Registered(Protocol):
    """What a registered node can do."""

    async def publish(self, record: NodeRecord) -> None:
        """Replace the node's record; return once others can see it.

        Raises:
            StateError: they cannot yet; they will when etcd is back.
        """

    async def nodes(self) -> list[NodeRecord]:
        """Return the records of all registered nodes.

        Raises:
            StateError: they cannot be read now.
        """

    async def wished_role(self) -> Role | None:
        """Return the role that the plan wants of the node; None if none, or nobody can say."""


class Member:
    """A node that is registered in etcd."""

    def __init__(self, client: EtcdClient, deployment: str, registration: Registration) -> None:
        self._client = client
        self._deployment = deployment
        self._registration = registration

    async def publish(self, record: NodeRecord) -> None:
        """Replace the node's record; return once it is in etcd. Raises: StateError."""
        self._registration.update(record)
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await self._registration.wait_written()
        except TimeoutError:
            detail = self._registration.status.detail or "no answer"
            raise StateError(f"the node's record is not in etcd: {detail}") from None

    async def nodes(self) -> list[NodeRecord]:
        """Return the records of all registered nodes. Raises: StateError."""
        return await read_nodes(self._client, self._deployment)

    async def wished_role(self) -> Role | None:
        """Return the role that the plan wants of the node; None if none, or nobody can say."""
        try:
            wish = await read_wish(self._client, self._deployment, self._registration.record.name)
        except EtcdError:
            return None
        return wish.role if wish else None


@asynccontextmanager
async def registered(config: NodeConfig, record: NodeRecord) -> AsyncIterator[Member]:
    """Keep `record` in etcd under a lease; an etcd that is away only delays it.

    Raises:
        StateError: the node's layout is not that of the others of its model.
    """
    deployment = config.node.deployment
    async with EtcdClient.of(config) as client:
        await _require_layout(client, deployment, record)
        membership = Membership(client, deployment)
        async with membership.register(record, ttl_s=config.etcd.lease_ttl_s) as registration:
            yield Member(client, deployment, registration)


async def _require_layout(client: EtcdClient, deployment: str, record: NodeRecord) -> None:
    """Raises: StateError. Where etcd does not answer, peers find out when lanes are opened."""
    try:
        nodes = await read_nodes(client, deployment)
    except StateError:
        return
    problem = layout_problem(record, nodes)
    if problem:
        raise StateError(f"not registered: {problem}")


async def read_nodes(client: EtcdClient, deployment: str) -> list[NodeRecord]:
    """Return the records of all registered nodes.

    Raises:
        StateError: they cannot be read now.
    """
    try:
        found = await client.list(nodes_prefix(deployment))
        return [NodeRecord.from_json(item.value) for item in found.items.values()]
    except (EtcdError, ConfigError) as error:
        raise StateError(f"cannot read the deployment's nodes: {error}") from None
