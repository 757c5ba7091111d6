"""Keep one node's record in etcd for as long as its process lives."""

import asyncio
import logging
import random
from dataclasses import dataclass

from prfaas.keys import node_key
from prfaas.records import NodeRecord
from prfaas_coord.client import EtcdClient
from prfaas_coord.companion import Accompanied
from prfaas_coord.errors import EtcdError
from prfaas_coord.lease import Lease

logger = logging.getLogger(__name__)

_BACKOFF_FIRST_S = 0.2
_BACKOFF_LAST_S = 2.0


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """How a registration stands; `detail` says why it is not registered."""

    registered: bool
    detail: str = ""
    registrations_total: int = 0


class Membership:
    """The members of one deployment, for a node that wants to be one of them."""

    def __init__(self, client: EtcdClient, deployment: str) -> None:
        self._client = client
        self._deployment = deployment

    def register(self, record: NodeRecord, *, ttl_s: int) -> "Registration":
        """Return the context in which the node is registered; it starts at `async with`."""
        key = node_key(self._deployment, record.name)
        return Registration(self._client, key, record, ttl_s=ttl_s)


class Registration(Accompanied):
    """One node's record under a lease, written again whenever etcd forgot it.

    An etcd that is away, at the start or later, only shows in `status`. Where two processes
    register one name, the later one stays and the earlier one waits until the name is free.
    """

    def __init__(self, client: EtcdClient, key: str, record: NodeRecord, *, ttl_s: int) -> None:
        super().__init__(f"register {key}")
        self._client = client
        self._key = key
        self._record = record
        self._ttl_s = ttl_s
        self._updated = asyncio.Event()
        self._registered = asyncio.Event()
        self._written = asyncio.Event()
        self._status = RegistrationStatus(registered=False, detail="not started")

    @property
    def record(self) -> NodeRecord:
        """The record as it was last given."""
        return self._record

    @property
    def status(self) -> RegistrationStatus:
        """How the registration stands now."""
        return self._status

    def update(self, record: NodeRecord) -> None:
        """Replace the record; it is written to etcd soon."""
        assert record.name == self._record.name
        self._record = record
        self._written.clear()
        self._updated.set()

    async def wait_written(self) -> None:
        """Wait until the record, as it was last given, is in etcd."""
        await self._written.wait()

    async def wait_registered(self) -> None:
        """Wait until the record is in etcd."""
        await self._registered.wait()

    async def _run(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        while True:
            try:
                lease = await Lease.grant(self._client, self._ttl_s)
                try:
                    await self._hold(lease)
                finally:
                    await lease.revoke()
                backoff_s = _BACKOFF_FIRST_S
                self._note_unregistered("the lease was lost")
                continue
            except EtcdError as error:
                self._note_unregistered(str(error))
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            backoff_s = min(backoff_s * 2, _BACKOFF_LAST_S)

    async def _hold(self, lease: Lease) -> None:
        """Write the record and keep it, until the lease is lost.

        Raises:
            EtcdError: the first write failed.
        """
        await self._write(lease)
        while not lease.lost.is_set():
            await self._wait_for_update(lease.refresh_interval_s)
            try:
                if not await lease.refresh():
                    return
                await self._restore(lease)
            except EtcdError as error:
                self._note_unregistered(str(error))

    async def _wait_for_update(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._updated.wait()
        except TimeoutError:
            return

    async def _restore(self, lease: Lease) -> None:
        """Write the record if it changed here or is missing there."""
        found = await self._client.get(self._key)
        if found is not None and found.lease_id not in (0, lease.lease_id):
            self._note_unregistered("another process registered this name later")
        elif found is None or self._updated.is_set() or not self._status.registered:
            await self._write(lease)

    async def _write(self, lease: Lease) -> None:
        self._updated.clear()
        try:
            await self._client.put(self._key, self._record.to_json(), lease_id=lease.lease_id)
        except EtcdError:
            self._updated.set()
            raise
        if not self._status.registered:
            logger.info("registered %s", self._key)
        count = self._status.registrations_total + 1
        self._status = RegistrationStatus(registered=True, registrations_total=count)
        self._registered.set()
        if not self._updated.is_set():
            self._written.set()

    def _note_unregistered(self, detail: str) -> None:
        if self._status.detail != detail:
            logger.warning("not registered %s: %s", self._key, detail)
        count = self._status.registrations_total
        self._status = RegistrationStatus(
            registered=False, detail=detail, registrations_total=count
        )
        self._registered.clear()
