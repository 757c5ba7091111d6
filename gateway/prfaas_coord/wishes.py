"""Which role the plan wants of a node. The leader writes it, the node's agent follows it."""

import time
from collections.abc import Mapping

from prfaas.errors import ConfigError
from prfaas.keys import wish_key, wishes_prefix
from prfaas.records import Role, RoleWish
from prfaas_coord.client import EtcdClient


async def write_wish(
    client: EtcdClient, deployment: str, node: str, role: Role, *, guards: Mapping[str, int]
) -> bool:
    """Ask a node to take a role, unless it is asked already; False if so, or if a guard failed.

    Raises:
        EtcdError: etcd is away or refuses.
    """
    key = wish_key(deployment, node)
    wish = RoleWish(role, at_s=time.time())
    return await client.cas_all({key: wish.to_json()}, expected_revisions={key: 0, **guards})


async def read_wish(client: EtcdClient, deployment: str, node: str) -> RoleWish | None:
    """Return what is wanted of a node, None if nothing is, or nothing that we understand.

    Raises:
        EtcdError: etcd is away or refuses.
    """
    found = await client.get(wish_key(deployment, node))
    return _wish(found.value) if found else None


async def read_wishes(client: EtcdClient, deployment: str) -> dict[str, RoleWish | None]:
    """Return all wishes by node; None for what is none.

    Raises:
        EtcdError: etcd is away or refuses.
    """
    prefix = wishes_prefix(deployment)
    found = await client.list(prefix)
    return {key.removeprefix(prefix): _wish(item.value) for key, item in found.items.items()}


async def drop_wish(client: EtcdClient, deployment: str, node: str) -> None:
    """Want nothing of a node any more. Raises: EtcdError."""
    await client.delete(wish_key(deployment, node))


def _wish(value: bytes) -> RoleWish | None:
    try:
        return RoleWish.from_json(value)
    except ConfigError:
        return None
