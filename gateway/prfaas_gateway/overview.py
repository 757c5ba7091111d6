"""All that a person who watches a gateway wants to see, as one small document."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from prfaas.routing import LinkRule
from prfaas_gateway.history import SAMPLE_S, rates
from prfaas_gateway.recent_requests import WINDOW_S
from prfaas_gateway.watcher import Watcher, link_point, rtt_of

MAX_NODES = 500
"""More are counted and not listed."""

Json = dict[str, Any]


def overview(watcher: Watcher, *, since_s: float, num_decisions: int) -> Json:
    """Return the document; of the history only the points after a Unix time."""
    gateway = watcher.gateway
    fleet = gateway.fleet.describe()
    return {
        "at_s": round(time.time(), 3),
        "deployment": gateway.deployment,
        "gateway": gateway.scheduler.name,
        "region": fleet["region"],
        "sample_s": SAMPLE_S,
        "etcd": fleet["etcd"],
        "missing": fleet["missing"],
        "in_flight": gateway.active_requests,
        "threshold_tokens": fleet["threshold_tokens"],
        "policy_version": fleet["policy_version"],
        "plan": _plan(watcher),
        "requests": _requests(watcher),
        "ttft": asdict(gateway.metrics.recent.ttft(time.monotonic())) | {"window_s": WINDOW_S},
        "regions": regions(fleet["nodes"], own=fleet["region"], paces=fleet["tokens_per_s"]),
        "links": _links(watcher, fleet["links"]),
        "decisions": gateway.dispatcher.decisions.recent(num_decisions),
        "history": [asdict(point) for point in watcher.history.since(since_s)],
    }


def _plan(watcher: Watcher) -> Json:
    plan, seen = watcher.plan, watcher.gateway.scheduler.describe()
    return {
        "version": plan.version if plan else None,
        "by": plan.by if plan else "",
        "why": plan.why if plan else "",
        "at_s": plan.at_s if plan else None,
        "pinned": plan.pinned if plan else False,
        "leader": seen["leader"],
        "is_leader": seen["is_leader"],
        "problem": seen["problem"],
        "converting": seen["converting"],
        "bottleneck": seen["bottleneck"],
    }


def _requests(watcher: Watcher) -> Json:
    """Return the rates of the last minute, and what they are made of, the most frequent first."""
    ended = watcher.history.ended(time.time() - WINDOW_S)
    per_s, errors_per_s = rates(ended, WINDOW_S)
    return {
        "window_s": WINDOW_S,
        "total": sum(watcher.gateway.metrics.recent.counts.values()),
        "per_s": per_s,
        "errors_per_s": errors_per_s,
        "ended": [
            {"route": str(one.route), "reason": str(one.reason), "code": one.code, "count": count}
            for one, count in ended.most_common()
        ],
    }


def regions(nodes: Iterable[Json], *, own: str, paces: Mapping[str, float]) -> list[Json]:
    """Return the regions, our own first, with their nodes as `Fleet.describe` gives them."""
    by_region: dict[str, list[Json]] = {own: []}
    for node in nodes:
        by_region.setdefault(node["region"], []).append(node)
    left = MAX_NODES
    found = []
    for name in sorted(by_region, key=lambda name: (name != own, name)):
        members = by_region[name]
        listed = members[:left]
        left -= len(listed)
        found.append(
            {
                "name": name,
                "is_own": name == own,
                "in_flight": sum(node["in_flight"] for node in members),
                "backlog_tokens": sum(node["backlog_tokens"] for node in members),
                "tokens_per_s": paces.get(name),
                "num_nodes": len(members),
                "nodes": [_node(node) for node in listed],
            }
        )
    return found


def _node(node: Json) -> Json:
    names = (
        "name",
        "role",
        "in_flight",
        "backlog_tokens",
        "share",
        "signals_age_s",
        "index_blocks",
    )
    return {name: node[name] for name in names} | {"health": health_of(node)}


def health_of(node: Json) -> str:
    """Return how a node does, in a word.

    >>> health_of({"quarantined_s": 0.0, "draining": False, "share": 0.4})
    'slow_start'
    """
    if node["quarantined_s"]:
        return "quarantined"
    if node["draining"]:
        return "draining"
    return "slow_start" if node["share"] < 1 else "serving"


def _links(watcher: Watcher, described: Mapping[str, Json]) -> list[Json]:
    fleet = watcher.gateway.fleet
    threshold_tokens = fleet.policy.threshold_tokens
    found = []
    for remote, link in fleet.links().items():
        rule = fleet.watch.rules.get(remote, LinkRule())
        paths = watcher.paths(remote)
        point = link_point(link, rule, rtt_of(paths), threshold_tokens=threshold_tokens)
        before = watcher.history.factor_before(remote)
        found.append(
            asdict(point)
            | {
                "from": remote,
                "to": fleet.region,
                "state": link_state(rule, before),
                "mode": described.get(remote, {}).get("rule", {}).get("bandwidth", "scarce"),
                "up": None if link.signal is None else link.signal.up,
                "utilisation": None if link.signal is None else link.signal.utilisation,
                "backlog_bytes": sum(path.backlog_bytes for path in paths),
                "num_paths": link.num_paths,
                "is_stale": link.is_stale,
                "age_s": link.age_s,
            }
        )
    return found


def link_state(rule: LinkRule, factor_before: float) -> str:
    """Return whether offloads pass a link, and where that goes.

    >>> link_state(LinkRule(threshold_factor=2.0), 1.0), link_state(LinkRule(closed=True), 1.0)
    ('closing', 'closed')
    """
    if rule.closed:
        return "closed"
    if rule.threshold_factor <= 1:
        return "open"
    return "opening" if rule.threshold_factor < factor_before else "closing"
