"""Write the deployment's routing policy; reading it is part of `MembershipView`."""

from dataclasses import replace

from prfaas.errors import ConfigError
from prfaas.keys import policy_key
from prfaas.records import RoutingPolicy
from prfaas_coord.client import EtcdClient
from prfaas_coord.errors import EtcdUnavailable

_TRIES = 5


async def write_policy(client: EtcdClient, deployment: str, policy: RoutingPolicy) -> RoutingPolicy:
    """Store the policy with the version after the stored one, and return what was stored.

    Raises:
        EtcdError: etcd is away, refuses, or others keep writing at the same time.
    """
    key = policy_key(deployment)
    for _ in range(_TRIES):
        found = await client.get(key)
        written = replace(policy, version=_version(found.value if found else None) + 1)
        revision = found.revision if found else 0
        if await client.cas(key, written.to_json(), expected_revision=revision):
            return written
    raise EtcdUnavailable(f"etcd key {key}: {_TRIES} writes were overtaken by others; try again")


async def read_policy(client: EtcdClient, deployment: str) -> RoutingPolicy | None:
    """Return the stored policy, None where there is none.

    Raises:
        EtcdError: etcd is away or refuses.
        ConfigError: what is stored is not a policy.
    """
    found = await client.get(policy_key(deployment))
    return RoutingPolicy.from_json(found.value) if found else None


def _version(stored: bytes | None) -> int:
    if stored is None:
        return 0
    try:
        return RoutingPolicy.from_json(stored).version
    except ConfigError:
        return 0
