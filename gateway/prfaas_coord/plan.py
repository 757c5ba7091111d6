"""The deployment's plan and its versions. A plan is written together with the policy's threshold.

Gateways follow the policy; so whoever follows the plan needs no other key, and all change at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from prfaas.errors import ConfigError
from prfaas.keys import plan_key, plan_version_key, plan_versions_prefix, policy_key
from prfaas.plan_record import PlanRecord
from prfaas.records import RoutingPolicy
from prfaas_coord.client import EtcdClient

#: Older versions are dropped.
KEPT_VERSIONS = 100


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The plan and the policy as they were read together, and the revisions that they had."""

    plan: PlanRecord | None
    policy: RoutingPolicy | None
    plan_revision: int = 0
    policy_revision: int = 0

    @property
    def version(self) -> int:
        """The plan's version, 0 where there never was one."""
        return self.plan.version if self.plan else 0


async def read_plan(client: EtcdClient, deployment: str) -> StoredPlan:
    """Return what is stored.

    Raises:
        EtcdError: etcd is away or refuses.
        ConfigError: what is stored is not a plan, or not a policy.
    """
    plan = await client.get(plan_key(deployment))
    policy = await client.get(policy_key(deployment))
    return StoredPlan(
        PlanRecord.from_json(plan.value) if plan else None,
        RoutingPolicy.from_json(policy.value) if policy else None,
        plan.revision if plan else 0,
        policy.revision if policy else 0,
    )


async def write_plan(
    client: EtcdClient,
    deployment: str,
    plan: PlanRecord,
    *,
    over: StoredPlan,
    guards: Mapping[str, int] | None = None,
) -> PlanRecord | None:
    """Store the plan as the version after `over`; None if another came first, or a guard failed.

    `guards` are keys that must have these revisions still: a leader's own.

    Raises:
        EtcdError: etcd is away or refuses.
    """
    written = replace(plan, version=over.version + 1)
    policy = over.policy or RoutingPolicy(version=0)
    policy = replace(policy, threshold_tokens=plan.threshold_tokens, version=policy.version + 1)
    revisions = {
        plan_key(deployment): over.plan_revision,
        policy_key(deployment): over.policy_revision,
        **(guards or {}),
    }
    values = {
        plan_key(deployment): written.to_json(),
        policy_key(deployment): policy.to_json(),
        plan_version_key(deployment, written.version): written.to_json(),
    }
    if not await client.cas_all(values, expected_revisions=revisions):
        return None
    if written.version > KEPT_VERSIONS:
        await client.delete(plan_version_key(deployment, written.version - KEPT_VERSIONS))
    return written


async def read_versions(client: EtcdClient, deployment: str) -> list[PlanRecord]:
    """Return the versions that are kept, the newest first.

    Raises:
        EtcdError: etcd is away or refuses.
    """
    found = await client.list(plan_versions_prefix(deployment))
    versions = []
    for item in found.items.values():
        try:
            versions.append(PlanRecord.from_json(item.value))
        except ConfigError:
            continue  # of another release: it cannot be applied either
    return sorted(versions, key=lambda plan: -plan.version)
