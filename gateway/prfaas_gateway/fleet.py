"""The nodes as this gateway knows them: records from etcd, its own legs, failures, prefixes."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from prfaas.blocks import HashedPrompt, PrefixIndex
from prfaas.reasons import Reason
from prfaas.records import NodeRecord, Role, RoutingPolicy
from prfaas.routing import (
    NodeState,
    Quarantine,
    Routable,
    SlowStart,
    Snapshot,
    mean_pace,
    snapshot_of,
)
from prfaas.routing.region_link import RegionLink
from prfaas_coord import ViewStatus
from prfaas_gateway.cache_book import CacheBook
from prfaas_gateway.errors import RequestError, ServiceError
from prfaas_gateway.link_watch import LONGEST_WAIT_S, LinkWatch, scarce
from prfaas_gateway.signal_book import SignalBook


class View(Protocol):
    """What the fleet reads; `prfaas_coord.MembershipView` is one."""

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """The known nodes by name."""

    @property
    def policy(self) -> RoutingPolicy | None:
        """The deployment's policy."""

    @property
    def status(self) -> ViewStatus:
        """How fresh all this is."""


class Fleet:
    """Everything routing reads, and the notes that dispatch takes. One event loop only."""

    def __init__(
        self,
        view: View,
        *,
        region: str,
        default_threshold_tokens: int,
        absorb_tokens: float = math.inf,
    ) -> None:
        self._view = view
        self._region = region
        self._default_threshold_tokens = default_threshold_tokens
        self._absorb_tokens = absorb_tokens
        self._in_flight: Counter[str] = Counter()
        self._backlog_tokens: Counter[str] = Counter()
        self.signals = SignalBook()
        self.caches = CacheBook()
        self.watch = LinkWatch(self.signals, region=region)
        self._quarantine = Quarantine()
        self._slow_start = SlowStart()
        self._indexes: dict[str, tuple[str, PrefixIndex]] = {}
        self._pruned_for: Mapping[str, NodeRecord] | None = None

    @property
    def view(self) -> View:
        """The view that this fleet reads."""
        return self._view

    @property
    def region(self) -> str:
        """Where requests are decoded."""
        return self._region

    @property
    def policy(self) -> RoutingPolicy:
        """The policy in force: the one in etcd, or the configured threshold."""
        default = RoutingPolicy(threshold_tokens=self._default_threshold_tokens, version=0)
        return self._view.policy or default

    def engines(self) -> list[NodeRecord]:
        """Return the records of all prefill and decode nodes."""
        return [node for node in self._view.nodes.values() if node.role is not Role.GATEWAY]

    def snapshot(self, prompt: HashedPrompt, *, is_scarce: bool = False) -> Snapshot[Routable]:
        """Return what routing decides a request from; `is_scarce`: as if no cache could move."""
        rules = self.watch.rules
        if is_scarce:
            rules = {region: scarce(rule) for region, rule in rules.items()}
        return snapshot_of(
            self.states(prompt),
            region=self._region,
            threshold_tokens=self.policy.threshold_tokens,
            absorb_tokens=self._absorb_tokens,
            longest_wait_s=LONGEST_WAIT_S,
            links=rules,
            tokens_per_s=self.watch.tokens_per_s,
        )

    def loads(self) -> list[NodeState]:
        """Return every engine and what this gateway has there."""
        return [
            NodeState(
                record=node,
                in_flight=self._in_flight[node.name],
                backlog_tokens=self._backlog_tokens[node.name],
            )
            for node in self.engines()
        ]

    def states(self, prompt: HashedPrompt) -> list[NodeState]:
        """Return every engine as it is for this prompt."""
        self._prune()
        return [self._state(node, prompt) for node in self.engines()]

    def _state(self, node: NodeRecord, prompt: HashedPrompt) -> NodeState:
        prefix_tokens = self._prefix_tokens(node, prompt) if node.role is Role.PREFILL else 0
        return NodeState(
            record=node,
            in_flight=self._in_flight[node.name],
            prefix_tokens=prefix_tokens,
            quarantined_until_s=self._quarantine.until_s(node.name, node.session),
            backlog_tokens=self._backlog_tokens[node.name],
            share=self._slow_start.share(node.name, _now_s()),
        )

    def _prefix_tokens(self, node: NodeRecord, prompt: HashedPrompt) -> int:
        """Return a prompt's hit at a node: what the node tells, or else what we sent it.

        A node tells of its own memory. What it lost may be in the pool of its host.
        """
        told = self.caches.match(node, prompt)
        if told is None:
            return self._index(node).match(prompt)
        return max(told, self._index(node).match(prompt)) if node.pool else told

    def _index(self, node: NodeRecord) -> PrefixIndex:
        key, life = _cache_of(node)
        known_life, index = self._indexes.get(key, ("", None))
        if index is None or life != known_life:
            index = PrefixIndex(
                stateful=node.stateful,
                checkpoint_tokens=node.checkpoint_tokens,
                page_tokens=node.page_tokens,
            )
            self._indexes[key] = (life, index)
        return index

    def _prune(self) -> None:
        nodes = self._view.nodes
        if nodes is self._pruned_for:
            return
        self._pruned_for = nodes
        self._quarantine.retain(frozenset(nodes))
        self._slow_start.see(((node.name, node.session) for node in self.engines()), _now_s())
        caches = {_cache_of(node)[0] for node in nodes.values()}
        self._indexes = {key: known for key, known in self._indexes.items() if key in caches}

    @contextmanager
    def prefilling(self, node: NodeRecord, tokens: int) -> Iterator[Callable[[], None]]:
        """Time a prefill while the context lasts; what it yields is to be called if it succeeds."""
        pace, done = self.watch.pace(node.name), None
        pace.begin(now_s=_now_s())

        def succeed() -> None:
            nonlocal done
            done = tokens

        try:
            yield succeed
        finally:
            pace.end(now_s=_now_s(), tokens=done)

    def expected_prefill_s(self, node: NodeRecord, tokens: int) -> float | None:
        """Return how long a node should take for what it has and these tokens; None if unknown."""
        tokens_per_s = mean_pace([self.watch.pace(node.name)])
        return tokens_per_s and (self._backlog_tokens[node.name] + tokens) / tokens_per_s

    @contextmanager
    def occupy(self, node: NodeRecord, backlog_tokens: int = 0) -> Iterator[None]:
        """Count a leg at the node, and the tokens it has to prefill, while the context lasts."""
        self._in_flight[node.name] += 1
        self._backlog_tokens[node.name] += backlog_tokens
        try:
            yield
        finally:
            self._in_flight[node.name] -= 1
            self._backlog_tokens[node.name] -= backlog_tokens
            if not self._in_flight[node.name]:
                del self._in_flight[node.name], self._backlog_tokens[node.name]

    def note_unreachable(self, node: NodeRecord) -> None:
        """Leave the node alone for a moment."""
        self._quarantine.add(node.name, node.session, _now_s())

    def note_answered(self, node: NodeRecord) -> None:
        """Trust the node again; slowly, if it had failed."""
        if self._quarantine.until_s(node.name, node.session):
            self._slow_start.restart(node.name, node.session, _now_s())
            self._quarantine.clear(node.name)

    def note_prefilled(self, node: NodeRecord, prompt: HashedPrompt) -> None:
        """Remember that the node holds the prompt, if it still is the process we asked."""
        current = self._view.nodes.get(node.name)
        if current is not None and current.session == node.session:
            self._index(node).insert(prompt)

    def note_moved(self, node: NodeRecord, prompt: HashedPrompt, tokens: int) -> None:
        """Remember that the pool of the node has the first tokens of the prompt."""
        current = self._view.nodes.get(node.name)
        if current is not None and current.pool == node.pool:
            self._index(current).insert(prompt.first(min(tokens, prompt.num_tokens)))

    def find_model(self, model: str) -> NodeRecord:
        """Return a record of a node that serves the model; "" means the only one.

        Raises:
            RequestError: the model is unknown, or must be named.
            ServiceError: no engine is known at all.
        """
        by_model = {node.model_id: node for node in self.engines()}
        if not by_model:
            raise ServiceError(Reason.NO_DECODE, "no prefill or decode node is known")
        if model in by_model:
            return by_model[model]
        known = ", ".join(sorted(by_model))
        if model:
            raise RequestError(
                f"model {model!r} does not exist; there is: {known}",
                reason=Reason.MODEL_NOT_FOUND,
                param="model",
            )
        if len(by_model) > 1:
            raise RequestError(f"model: missing; one of: {known}", param="model")
        return next(iter(by_model.values()))

    def context_limit_tokens(self, model_id: str) -> int:
        """Return the longest prompt plus output that some pair of nodes takes; 0 if unknown."""
        limits = []
        for role in (Role.PREFILL, Role.DECODE):
            sizes = [
                node.context_tokens
                for node in self.engines()
                if node.role is role and node.model_id == model_id
            ]
            if sizes and 0 not in sizes:
                limits.append(max(sizes))
        return min(limits, default=0)

    def missing(self) -> list[str]:
        """Return what is lacking to serve requests, in words; empty when nothing is."""
        engines = [node for node in self.engines() if not node.draining]
        lacks = []
        if not any(n.role is Role.DECODE and n.region == self._region for n in engines):
            lacks.append(f"no decode node in region {self._region}")
        if not any(n.role is Role.PREFILL for n in engines):
            lacks.append("no prefill node")
        return lacks

    def count_by_role(self) -> Counter[tuple[str, str]]:
        """Return the number of nodes per (role, region)."""
        return Counter((str(n.role), n.region) for n in self._view.nodes.values())

    def links(self) -> dict[str, RegionLink]:
        """Return the links from other regions' prefill nodes to our decode nodes, by region."""
        return self.watch.links(self._view.nodes, _now_s())

    def effective_tokens(self) -> dict[str, float | None]:
        """Return above how many tokens prompts are offloaded, by region; None: no prompt is."""
        t = self.policy.threshold_tokens
        rules = self.watch.rules.items()
        return {name: None if rule.closed else rule.effective_tokens(t) for name, rule in rules}

    def in_flight(self) -> Mapping[str, int]:
        """Return the legs of this gateway per node name."""
        return dict(self._in_flight)

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON values, for people."""
        self._prune()
        status = self._view.status
        age_s = None if status.age_s is None else round(status.age_s, 3)
        return {
            "region": self._region,
            "threshold_tokens": self.policy.threshold_tokens,
            "policy_version": self.policy.version,
            "etcd": {
                "stale": status.stale,
                "synced": status.synced,
                "age_s": age_s,
                "detail": status.detail,
            },
            "missing": self.missing(),
            "links": {
                region: link.to_json()
                | {"rule": self.watch.describe(region, self.policy.threshold_tokens)}
                for region, link in self.links().items()
            },
            "tokens_per_s": {name: round(pace) for name, pace in self.watch.tokens_per_s.items()},
            "nodes": [self._describe_node(node) for _, node in sorted(self._view.nodes.items())],
        }

    def _describe_node(self, node: NodeRecord) -> dict[str, Any]:
        until_s = self._quarantine.until_s(node.name, node.session)
        _, index = self._indexes.get(_cache_of(node)[0], ("", None))
        return {
            "name": node.name,
            "role": str(node.role),
            "region": node.region,
            "url": node.url,
            "session": node.session,
            "draining": node.draining,
            "residency": list(node.residency),
            "share": round(self._slow_start.share(node.name, _now_s()), 3),
            "model_id": node.model_id,
            "context_tokens": node.context_tokens,
            "in_flight": self._in_flight[node.name],
            "backlog_tokens": self._backlog_tokens[node.name],
            "quarantined_s": round(max(0.0, until_s - _now_s()), 3) if until_s else 0.0,
            "signals_age_s": self.signals.age_s(node.name, _now_s()),
            "index_blocks": len(index) if index is not None else 0,
            "told_blocks": self.caches.blocks(node.name),
        }


def _cache_of(node: NodeRecord) -> tuple[str, str]:
    """Return what names the cache that a node uses, and its life.

    A pool is shared by the nodes of its host, and outlives them.
    """
    if node.pool:
        return f"{node.pool}\0{node.model_id}\0{node.layout}\0{node.tp_size}", ""
    return node.name, node.session


def _now_s() -> float:
    return asyncio.get_running_loop().time()
