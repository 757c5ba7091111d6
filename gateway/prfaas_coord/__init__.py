"""Coordination through etcd: a small client, membership with leases, a watched view.

```
async with EtcdClient.of(config) as client:
    async with Membership(client, "default").register(record, ttl_s=5) as registration:
        registration.update(replace(record, session=new_session))
        registration.status                # registered, or why not

    async with MembershipView(client, "default") as view:
        view.nodes, view.policy, view.status   # synchronous; kept while etcd is away
```

Close the view and the registration before the client.
"""

from prfaas_coord.client import EtcdClient
from prfaas_coord.election import Election
from prfaas_coord.errors import EtcdError, EtcdRefused, EtcdUnavailable
from prfaas_coord.events import Delete, Heard, KeyValue, Lost, Put, Snapshot, WatchEvent
from prfaas_coord.lease import Lease
from prfaas_coord.membership import Membership, Registration, RegistrationStatus
from prfaas_coord.plan import StoredPlan, read_plan, read_versions, write_plan
from prfaas_coord.policy import read_policy, write_policy
from prfaas_coord.view import MembershipView, ViewStatus

__all__ = [
    "Delete",
    "Election",
    "EtcdClient",
    "EtcdError",
    "EtcdRefused",
    "EtcdUnavailable",
    "Heard",
    "KeyValue",
    "Lease",
    "Lost",
    "Membership",
    "MembershipView",
    "Put",
    "Registration",
    "RegistrationStatus",
    "Snapshot",
    "StoredPlan",
    "ViewStatus",
    "WatchEvent",
    "read_plan",
    "read_policy",
    "read_versions",
    "write_plan",
    "write_policy",
]
