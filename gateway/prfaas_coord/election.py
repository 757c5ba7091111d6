"""One leader among the gateways of a deployment: who holds the key, under a lease of two seconds.

A leader that cannot refresh its lease stops leading by its own clock before etcd lets another one
have the key; and what it writes names the revision of its key, so that a write that was on its way
for too long fails.
"""

import asyncio
import logging

from prfaas.keys import leader_key
from prfaas_coord.client import EtcdClient
from prfaas_coord.companion import Accompanied
from prfaas_coord.errors import EtcdError
from prfaas_coord.lease import Lease

logger = logging.getLogger(__name__)

LEASE_TTL_S = 2
_TRY_EVERY_S = 0.3
#: What clocks may differ in their speed over one lease, and more.
_MARGIN_S = 0.3


class Election(Accompanied):
    """Stands for election for as long as the context lasts; reading is synchronous."""

    def __init__(self, client: EtcdClient, deployment: str, candidate: str) -> None:
        super().__init__(f"election {candidate}")
        self.key = leader_key(deployment)
        self._client = client
        self._candidate = candidate
        self._revision = 0
        self._until_s = 0.0
        self._leader = ""

    @property
    def leader(self) -> str:
        """Who leads as far as is known, empty if nobody."""
        return self._candidate if self.is_leader else self._leader

    @property
    def is_leader(self) -> bool:
        """Whether we lead, for certain."""
        return self._revision > 0 and _now_s() < self._until_s

    @property
    def guards(self) -> dict[str, int]:
        """What a write must find unchanged to be a leader's: see `write_plan`."""
        return {self.key: self._revision if self.is_leader else -1}

    async def _run(self) -> None:
        while True:
            try:
                await self._stand()
            except EtcdError as error:
                logger.debug("election: %s", error)
            await asyncio.sleep(_TRY_EVERY_S)

    async def _stand(self) -> None:
        """Take the key if it is free, and lead until it is lost. Raises: EtcdError."""
        found = await self._client.get(self.key)
        self._leader = found.value.decode(errors="replace") if found else ""
        if found is not None:
            return
        asked_s = _now_s()
        lease = await Lease.grant(self._client, LEASE_TTL_S)
        try:
            await self._lead(lease, asked_s)
        finally:
            self._revision = 0
            await lease.revoke()

    async def _lead(self, lease: Lease, asked_s: float) -> None:
        """Raises: EtcdError."""
        taken = await self._client.cas(
            self.key, self._candidate, expected_revision=0, lease_id=lease.lease_id
        )
        found = await self._client.get(self.key) if taken else None
        if found is None or found.lease_id != lease.lease_id:
            return
        self._until_s = asked_s + LEASE_TTL_S - _MARGIN_S
        self._revision = found.revision
        logger.info("%s leads", self._candidate)
        while not lease.lost.is_set() and _now_s() < self._until_s:
            await asyncio.sleep(lease.refresh_interval_s)
            asked_s = _now_s()
            try:
                if await lease.refresh():
                    self._until_s = asked_s + LEASE_TTL_S - _MARGIN_S
            except EtcdError:
                continue
        logger.warning("%s leads no more", self._candidate)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
