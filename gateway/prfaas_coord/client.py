"""A small asyncio client of the etcd v3 API: the calls that PrfaaS needs, each with a deadline.

Only the generated gRPC stubs come from `aetcd`; why is in docs/decisions/0004-etcd-client.md.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from aetcd import rpc

from prfaas.config import NodeConfig
from prfaas_coord.credentials import EtcdCredentials, etcd_credentials
from prfaas_coord.endpoints import grpc_target, tls_options
from prfaas_coord.errors import EtcdError, EtcdRefused, EtcdUnavailable
from prfaas_coord.events import KeyValue, Snapshot, WatchEvent
from prfaas_coord.ranges import key_value, prefix_end
from prfaas_coord.watch import watch

_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)

_CHANNEL_OPTIONS = (
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 64 << 20),
    # Channels of one process must not share a connection: each has its own backoff.
    ("grpc.use_local_subchannel_pool", 1),
)


RENEW_CHECK_S = 5.0
"""How often a node looks whether its certificate is a new one."""


class EtcdClient:
    """A connection to etcd. Create it inside the event loop; close it, or use `async with`.

    When the files of its certificate change, new calls go over a new connection; the old one is
    closed once its calls have ended, and watches begin again on the new one.

    Every method but `watch` raises `EtcdUnavailable` or `EtcdRefused` within `call_timeout_s`.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        call_timeout_s: float = 2.0,
        credentials: EtcdCredentials | None = None,
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.call_timeout_s = call_timeout_s
        self._credentials = credentials
        self._renew_s = time.monotonic() + RENEW_CHECK_S
        self._leaving: set[asyncio.Task[None]] = set()
        self._connect(None if credentials is None else credentials.channel_credentials)

    @classmethod
    def of(cls, config: NodeConfig, *, call_timeout_s: float = 2.0) -> Self:
        """Return the client of a node, with its certificate where TLS is on.

        Raises:
            ConfigError: the endpoints or the certificate's files are not usable.
        """
        return cls(
            config.etcd.endpoints,
            call_timeout_s=call_timeout_s,
            credentials=etcd_credentials(config.security),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls in flight end."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._channel.close()

    async def put(self, key: str, value: str | bytes, *, lease_id: int = 0) -> int:
        """Write a key and return the revision of the write."""
        request = rpc.PutRequest(key=key.encode(), value=_as_bytes(value), lease=lease_id)
        response = await self._call("put", self._kv.Put, request)
        return int(response.header.revision)

    async def get(self, key: str) -> KeyValue | None:
        """Read one key; None where there is none."""
        response = await self._call("get", self._kv.Range, rpc.RangeRequest(key=key.encode()))
        return key_value(response.kvs[0]) if response.kvs else None

    async def list(self, prefix: str) -> Snapshot:
        """Read all keys below a prefix."""
        request = rpc.RangeRequest(key=prefix.encode(), range_end=prefix_end(prefix))
        response = await self._call("list", self._kv.Range, request)
        items = [key_value(raw) for raw in response.kvs]
        return Snapshot(int(response.header.revision), {item.key: item for item in items})

    async def delete(self, key: str) -> bool:
        """Delete one key; False where there was none."""
        request = rpc.DeleteRangeRequest(key=key.encode())
        response = await self._call("delete", self._kv.DeleteRange, request)
        return bool(response.deleted)

    async def cas(
        self, key: str, value: str | bytes, *, expected_revision: int, lease_id: int = 0
    ) -> bool:
        """Write a key if its revision is `expected_revision` (0: it must not exist)."""
        raw = key.encode()
        compare = rpc.Compare(
            result=rpc.Compare.EQUAL,
            target=rpc.Compare.MOD,
            key=raw,
            mod_revision=expected_revision,
        )
        put = rpc.PutRequest(key=raw, value=_as_bytes(value), lease=lease_id)
        request = rpc.TxnRequest(compare=[compare], success=[rpc.RequestOp(request_put=put)])
        response = await self._call("cas", self._kv.Txn, request)
        return bool(response.succeeded)

    async def cas_all(
        self, values: Mapping[str, str], *, expected_revisions: Mapping[str, int]
    ) -> bool:
        """Write all keys or none: if all of `expected_revisions` hold (0: it must not exist)."""
        compare = [
            rpc.Compare(
                result=rpc.Compare.EQUAL,
                target=rpc.Compare.MOD,
                key=key.encode(),
                mod_revision=revision,
            )
            for key, revision in expected_revisions.items()
        ]
        puts = [
            rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value.encode()))
            for key, value in values.items()
        ]
        request = rpc.TxnRequest(compare=compare, success=puts)
        response = await self._call("cas", self._kv.Txn, request)
        return bool(response.succeeded)

    async def grant_lease(self, ttl_s: int) -> int:
        """Create a lease and return its id; see `prfaas_coord.lease.Lease`."""
        response = await self._call(
            "lease grant", self._leases.LeaseGrant, rpc.LeaseGrantRequest(TTL=ttl_s)
        )
        return int(response.ID)

    async def refresh_lease(self, lease_id: int) -> int:
        """Extend a lease and return its remaining seconds; 0 when it is gone."""
        call = self._leases.LeaseKeepAlive(timeout=self.call_timeout_s)
        try:
            await call.write(rpc.LeaseKeepAliveRequest(ID=lease_id))
            response = await call.read()
        except grpc.aio.AioRpcError as error:
            raise self._translate("lease refresh", error) from None
        finally:
            call.cancel()
        if response is grpc.aio.EOF:
            raise EtcdUnavailable(f"etcd {self._where()}: lease refresh: the stream ended")
        return max(0, int(response.TTL))

    async def revoke_lease(self, lease_id: int) -> None:
        """End a lease; its keys are deleted."""
        request = rpc.LeaseRevokeRequest(ID=lease_id)
        await self._call("lease revoke", self._leases.LeaseRevoke, request)

    def watch(self, prefix: str) -> AsyncGenerator[WatchEvent, None]:
        """Follow the keys below a prefix for ever; see `prfaas_coord.watch.watch`."""
        return watch(self, prefix)

    def open_watch(self) -> Any:
        """Return a raw bidirectional watch stream, for `prfaas_coord.watch` only."""
        return self._watches.Watch()

    def _connect(self, credentials: grpc.ChannelCredentials | None) -> None:
        target = grpc_target(self.endpoints)
        secure = (*_CHANNEL_OPTIONS, *tls_options(self.endpoints))
        self._channel = (
            grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, options=secure)
        )
        channel = self._channel
        self._stubs = rpc.KVStub(channel), rpc.LeaseStub(channel), rpc.WatchStub(channel)

    def _renew(self) -> None:
        """Change over to a new connection if the certificate's files have changed."""
        now = time.monotonic()
        if self._credentials is None or now < self._renew_s:
            return
        self._renew_s = now + RENEW_CHECK_S
        credentials = self._credentials.renewed()
        if credentials is not None:
            task = asyncio.get_running_loop().create_task(self._channel.close(self.call_timeout_s))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            self._connect(credentials)

    @property
    def _kv(self) -> Any:
        self._renew()
        return self._stubs[0]

    @property
    def _leases(self) -> Any:
        self._renew()
        return self._stubs[1]

    @property
    def _watches(self) -> Any:
        self._renew()
        return self._stubs[2]

    async def _call(self, name: str, method: Any, request: Any) -> Any:
        try:
            return await method(request, timeout=self.call_timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._translate(name, error) from None

    def _translate(self, name: str, error: grpc.aio.AioRpcError) -> EtcdError:
        text = f"etcd {self._where()}: {name}: {error.code().name}: {error.details()}"
        return EtcdUnavailable(text) if error.code() in _TRANSIENT else EtcdRefused(text)

    def _where(self) -> str:
        return ",".join(self.endpoints)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
