"""Samples a gateway for people who watch it: a point of history every two seconds, and the plan."""

import asyncio
import logging
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prfaas.errors import ConfigError
from prfaas.plan_record import PlanRecord
from prfaas.routing import LinkRule
from prfaas.routing.region_link import RegionLink
from prfaas.transfer.signals import PeerSignals
from prfaas_coord import EtcdError, read_plan
from prfaas_coord.companion import Companion
from prfaas_gateway.gateway import Gateway
from prfaas_gateway.history import SAMPLE_S, History, LinkPoint, Point, rates
from prfaas_gateway.recent_requests import Finished

logger = logging.getLogger(__name__)


class Watcher:
    """Reads a gateway and changes nothing. `plan` is the last one read, None if there is none."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.history = History()
        self.plan: PlanRecord | None = None
        self._plan_of_policy = -1
        self._counted: Counter[Finished] = Counter()
        self._last_s = time.monotonic()

    async def run(self) -> None:
        """Sample until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sample_on(), name="history")
            group.create_task(self._follow_plan(), name="plan")

    def sample(self) -> None:
        """Take one point of history."""
        now_s = time.monotonic()
        seconds, self._last_s = max(now_s - self._last_s, 1e-3), now_s
        counted = Counter(self.gateway.metrics.recent.counts)
        ended = counted - self._counted
        self._counted = counted
        self.history.add(self._point(ended, seconds, now_s), ended)

    def _point(self, ended: Counter[Finished], seconds: float, now_s: float) -> Point:
        gateway, fleet = self.gateway, self.gateway.fleet
        per_s, errors_per_s = rates(ended, seconds)
        ttft = gateway.metrics.recent.ttft(now_s)
        backlog: Counter[str] = Counter()
        for load in fleet.loads():
            backlog[load.record.region] += load.backlog_tokens
        return Point(
            at_s=round(time.time(), 3),
            in_flight=gateway.active_requests,
            threshold_tokens=fleet.policy.threshold_tokens,
            policy_version=fleet.policy.version,
            per_s=per_s,
            errors_per_s=errors_per_s,
            ttft_p50_s=ttft.p50_s,
            ttft_p99_s=ttft.p99_s,
            backlog_tokens=dict(backlog),
            links=self._link_points(),
        )

    def _link_points(self) -> dict[str, LinkPoint]:
        fleet = self.gateway.fleet
        threshold_tokens, rules = fleet.policy.threshold_tokens, fleet.watch.rules
        return {
            remote: link_point(
                link,
                rules.get(remote, LinkRule()),
                rtt_of(self.paths(remote)),
                threshold_tokens=threshold_tokens,
            )
            for remote, link in fleet.links().items()
        }

    def paths(self, remote: str) -> list[PeerSignals]:
        """Return the paths of the link from a region, as their nodes last told of them."""
        fleet = self.gateway.fleet
        return fleet.signals.path_signals(fleet.view.nodes, remote=remote, region=fleet.region)

    async def _sample_on(self) -> None:
        while True:
            try:
                self.sample()
            except Exception:  # an outermost frame: who only watches must not end the gateway
                logger.exception("history")
            await asyncio.sleep(SAMPLE_S)

    async def _follow_plan(self) -> None:
        """Read the plan whenever the policy has another version: they are written together."""
        while True:
            fleet = self.gateway.fleet
            version = fleet.policy.version
            if version != self._plan_of_policy and not fleet.view.status.stale:
                try:
                    stored = await read_plan(self.gateway.etcd, self.gateway.deployment)
                    self.plan, self._plan_of_policy = stored.plan, version
                except (EtcdError, ConfigError) as error:
                    logger.info("the plan cannot be shown: %s", error)
            await asyncio.sleep(SAMPLE_S)


def link_point(
    link: RegionLink, rule: LinkRule, rtt_s: float | None, *, threshold_tokens: int
) -> LinkPoint:
    """Return what charts show of a link now."""
    known = link.num_paths > 0
    return LinkPoint(
        threshold_tokens=None if rule.closed else round(rule.effective_tokens(threshold_tokens)),
        threshold_factor=round(rule.threshold_factor, 3),
        closed=rule.closed,
        delivery_bytes_per_s=round(link.delivery_bytes_per_s) if known else None,
        available_bytes_per_s=round(link.available_bytes_per_s) or None if known else None,
        rtt_s=rtt_s,
        loss=None if link.signal is None else round(link.signal.loss, 5),
        backlog_s=None if link.signal is None else round(link.signal.backlog_s, 4),
    )


def rtt_of(paths: list[PeerSignals]) -> float | None:
    """Return the median round trip of some paths; None while none is known."""
    seen_s = [path.rtt_s for path in paths if path.rtt_s > 0]
    return round(statistics.median(seen_s), 6) if seen_s else None


@asynccontextmanager
async def sampling(watcher: Watcher) -> AsyncIterator[None]:
    """Sample while the context lasts."""
    companion = Companion()
    await companion.start(watcher.run(), name="watcher")
    try:
        yield
    finally:
        await companion.stop(None, None)
