"""What one deployment looks like: its nodes and its routing policy, as etcd last told."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from prfaas.errors import ConfigError
from prfaas.keys import deployment_prefix, nodes_prefix, policy_key
from prfaas.records import NodeRecord, RoutingPolicy
from prfaas_coord.client import EtcdClient
from prfaas_coord.companion import Accompanied
from prfaas_coord.events import Delete, Heard, KeyValue, Lost, Put, Snapshot, WatchEvent

logger = logging.getLogger(__name__)

STALE_AFTER_S = 3.0
"""Without a word from etcd for this long, what we know is called stale."""

GRACE_S = 10.0
"""How long a node stays known that is absent from the first snapshot after an outage.

An etcd that lost its data comes back empty, and the nodes need a moment to register again; their
absence then says nothing about them. A node that is really gone is found out by dispatch.
"""


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """How fresh a view is; `age_s` counts since etcd was last heard, None if it never was."""

    stale: bool
    synced: bool
    age_s: float | None
    detail: str


class MembershipView(Accompanied):
    """A watched copy of a deployment's keys, kept through outages of etcd.

    Used as `async with`; reading is synchronous and never waits. One writer: its own watch.
    """

    def __init__(self, client: EtcdClient, deployment: str, *, grace_s: float = GRACE_S) -> None:
        super().__init__(f"watch {deployment_prefix(deployment)}")
        self._client = client
        self._prefix = deployment_prefix(deployment)
        self._nodes_prefix = nodes_prefix(deployment)
        self._policy_key = policy_key(deployment)
        self._grace_s = grace_s
        self._nodes: Mapping[str, NodeRecord] = {}
        self._doubted_until: dict[str, float] = {}
        self._policy: RoutingPolicy | None = None
        self._synced = False
        self._heard_at: float | None = None
        self._lost_detail = "etcd was not heard yet"
        self._changed = asyncio.Event()

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """The known nodes by name; a new mapping object after every change."""
        return self._nodes

    @property
    def policy(self) -> RoutingPolicy | None:
        """The deployment's policy, None where none was ever set."""
        return self._policy

    @property
    def stale(self) -> bool:
        """Whether etcd is unreachable, so that what is known may be outdated."""
        return self.status.stale

    @property
    def status(self) -> ViewStatus:
        """How fresh the view is, and why it is not."""
        age_s = None if self._heard_at is None else _now_s() - self._heard_at
        detail = self._lost_detail
        if not detail and age_s is not None and age_s > STALE_AFTER_S:
            detail = f"etcd was silent for {age_s:.0f} s"
        return ViewStatus(stale=bool(detail), synced=self._synced, age_s=age_s, detail=detail)

    async def wait_for(self, predicate: Callable[[Self], bool]) -> None:
        """Wait until the predicate holds; it is asked again after every event."""
        while not predicate(self):
            await self._changed.wait()

    async def _run(self) -> None:
        async for event in self._client.watch(self._prefix):
            self._apply(event)
            self._forget_doubted()
            self._changed.set()
            self._changed = asyncio.Event()

    def _apply(self, event: WatchEvent) -> None:
        if isinstance(event, Lost):
            if not self._lost_detail:
                logger.warning("etcd lost, keeping %d known nodes: %s", len(self._nodes), event)
            self._lost_detail = event.detail
            return
        was_lost = bool(self._lost_detail)
        self._lost_detail = ""
        self._heard_at = _now_s()
        match event:
            case Snapshot():
                self._apply_snapshot(event, after_outage=was_lost and self._synced)
            case Put():
                self._apply_put(event.item)
            case Delete():
                self._apply_delete(event.key)
            case Heard():
                pass

    def _apply_snapshot(self, snapshot: Snapshot, *, after_outage: bool) -> None:
        listed = {
            record.name: record
            for item in snapshot.items.values()
            if (record := self._parse_node(item)) is not None
        }
        missing = {name: node for name, node in self._nodes.items() if name not in listed}
        if after_outage:
            until = _now_s() + self._grace_s
            self._doubted_until = {name: self._doubted_until.get(name, until) for name in missing}
            listed |= missing
        else:
            self._doubted_until.clear()
        self._nodes = listed
        self._synced = True
        if self._policy_key in snapshot.items:
            self._apply_policy(snapshot.items[self._policy_key])
        elif not after_outage:
            self._policy = None

    def _apply_put(self, item: KeyValue) -> None:
        if item.key == self._policy_key:
            self._apply_policy(item)
        elif (record := self._parse_node(item)) is not None:
            self._doubted_until.pop(record.name, None)
            self._nodes = {**self._nodes, record.name: record}

    def _apply_delete(self, key: str) -> None:
        if key == self._policy_key:
            self._policy = None
        elif key.startswith(self._nodes_prefix):
            self._drop(key.removeprefix(self._nodes_prefix))

    def _apply_policy(self, item: KeyValue) -> None:
        try:
            self._policy = RoutingPolicy.from_json(item.value)
        except ConfigError as error:
            logger.warning("ignoring %s: %s", item.key, error)

    def _parse_node(self, item: KeyValue) -> NodeRecord | None:
        if not item.key.startswith(self._nodes_prefix):
            return None
        try:
            record = NodeRecord.from_json(item.value)
        except ConfigError as error:
            logger.warning("ignoring %s: %s", item.key, error)
            return None
        if record.name != item.key.removeprefix(self._nodes_prefix):
            logger.warning("ignoring %s: its record is named %s", item.key, record.name)
            return None
        return record

    def _forget_doubted(self) -> None:
        now = _now_s()
        for name in [name for name, until in self._doubted_until.items() if until <= now]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._doubted_until.pop(name, None)
        self._nodes = {known: node for known, node in self._nodes.items() if known != name}


def _now_s() -> float:
    return asyncio.get_running_loop().time()
