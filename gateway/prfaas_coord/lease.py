"""A lease: keys bound to it vanish when nobody refreshes it any more."""

import asyncio
from typing import Self

from prfaas_coord.client import EtcdClient
from prfaas_coord.errors import EtcdError, EtcdUnavailable


class Lease:
    """A lease in etcd. `lost` is set once it is known to be gone; a lost lease never returns."""

    def __init__(self, client: EtcdClient, lease_id: int, ttl_s: int) -> None:
        self.lease_id = lease_id
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()
        self._client = client

    @classmethod
    async def grant(cls, client: EtcdClient, ttl_s: int) -> Self:
        """Create a lease.

        Raises:
            EtcdError: etcd is away or refuses.
        """
        return cls(client, await client.grant_lease(ttl_s), ttl_s)

    @property
    def refresh_interval_s(self) -> float:
        """How often to refresh, so that two refreshes may fail before the lease ends."""
        return self.ttl_s / 3

    async def refresh(self) -> bool:
        """Extend the lease; False, and `lost` set, when it is gone.

        An etcd that is away is no proof of loss: it extends all leases when it comes back.

        Raises:
            EtcdError: etcd is away or refuses.
        """
        if not self.lost.is_set() and await self._client.refresh_lease(self.lease_id) <= 0:
            self.lost.set()
        return not self.lost.is_set()

    async def keep(self) -> None:
        """Refresh until the lease is lost, through any outage of etcd; returns once `lost`."""
        while not self.lost.is_set():
            await asyncio.sleep(self.refresh_interval_s)
            try:
                await self.refresh()
            except EtcdUnavailable:
                continue

    async def revoke(self) -> None:
        """End the lease if etcd can be reached now; otherwise it ends by itself after its TTL."""
        self.lost.set()
        try:
            await self._client.revoke_lease(self.lease_id)
        except EtcdError:
            return
