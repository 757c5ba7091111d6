"""The long-term half of scheduling: on the leading gateway, a new version of the plan now and then.

Every gateway estimates the demand of its own requests all the time, so that a new leader knows it.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from prfaas.errors import ConfigError
from prfaas.plan_record import PlanRecord, RoleCounts
from prfaas.planning.demand_book import MIN_REQUESTS, DemandBook
from prfaas.planning.long_term import (
    StagesSeen,
    next_revision,
    plan_after,
    running_now,
    stages_seen,
)
from prfaas_coord import Election, EtcdClient, EtcdError, StoredPlan, read_plan, write_plan
from prfaas_gateway.conversions import Conversions
from prfaas_gateway.fleet import Fleet
from prfaas_gateway.peer_demand import PeerDemand

if TYPE_CHECKING:
    from prfaas.planning import Case

logger = logging.getLogger(__name__)

LOOK_S = 1.0
REPLAN_S = 60.0
_DECODE_SLOTS = 64


class Scheduler:
    """Re-plans while its gateway leads. Without a case there is nothing to plan by."""

    def __init__(
        self,
        etcd: EtcdClient,
        election: Election,
        fleet: Fleet,
        *,
        deployment: str,
        name: str,
        case: "Case | None",
        peers: PeerDemand,
    ) -> None:
        self.peers = peers
        self.demand = DemandBook(began_s=time.time())
        self.proposal: PlanRecord | None = None
        self.conversions = Conversions(etcd, election, fleet, deployment=deployment)
        self._etcd = etcd
        self._election = election
        self._fleet = fleet
        self._deployment = deployment
        self.name = name
        self._case = case
        self._next_s = 0.0
        self._problem = "" if case else "gateway.case is not set, so there is nothing to plan by"

    async def run(self) -> None:
        """Look once a second, plan once a minute, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._election.is_leader:
                try:
                    await self._step()
                except (EtcdError, ConfigError) as error:
                    self._problem = str(error)
                    logger.warning("long-term scheduling: %s", error)
                except Exception as error:  # the outermost frame: requests must go on being served
                    self._problem = f"internal error: {error!r}"
                    logger.exception("long-term scheduling")

    async def _step(self) -> None:
        """Raises: EtcdError, ConfigError."""
        stored = await read_plan(self._etcd, self._deployment)
        await self.conversions.look(stored.plan)
        if time.time() >= self._next_s:
            self._next_s = time.time() + REPLAN_S
            await self._replan(stored)

    async def _replan(self, stored: StoredPlan) -> None:
        """Raises: EtcdError, ConfigError."""
        self.proposal = await self.propose(stored)
        pinned = stored.plan is not None and stored.plan.pinned
        if self.proposal is None or pinned:
            return
        written = await write_plan(
            self._etcd,
            self._deployment,
            self.proposal,
            over=stored,
            guards=self._election.guards,
        )
        if written is not None:
            logger.info("plan %d: %s", written.version, written.to_json())

    async def propose(self, stored: StoredPlan) -> PlanRecord | None:
        """Return the plan that should come next; None if what runs is best, or nobody can say.

        Raises:
            ConfigError: the case does not fit what runs.
        """
        if self._case is None:
            return None
        demand = await self.peers.demand(self.demand.seen(at_s=time.time()))
        if demand is None or demand.requests < MIN_REQUESTS:
            self._problem = f"fewer than {MIN_REQUESTS} requests seen"
            return None
        engines = self._fleet.engines()
        if any(node.draining and node.region == self._fleet.region for node in engines):
            self._problem = "a node drains: its role is about to change"
            return None
        running = running_now(
            stored.plan,
            engines,
            self._case,
            region=self._fleet.region,
            threshold_tokens=self._fleet.policy.threshold_tokens,
        )
        if running is None:
            self._problem = f"no decode node in region {self._fleet.region}"
            return None
        self._problem = ""
        now_s, seen = time.time(), self.stages()
        case = self._case
        revision = await asyncio.to_thread(
            lambda: next_revision(running, demand, seen, case, at_s=now_s)
        )
        if revision is None:
            return None
        return plan_after(
            revision, running, stored.plan, region=self._fleet.region, by=self.name, at_s=now_s
        )

    def stages(self) -> StagesSeen:
        """Return how full the stages are, as far as this gateway's requests tell."""
        demand = self.demand.seen(at_s=time.time())
        tpot_s = self._case.demand.tpot_s if self._case else 0.0
        return stages_seen(
            self._fleet.loads(),
            region=self._fleet.region,
            tokens_per_s=self._fleet.watch.tokens_per_s,
            decode_slots=_DECODE_SLOTS,
            answer_s=demand.output_tokens * tpot_s if demand else 0.0,
        )

    async def apply(self, change: "PlanChange", stored: StoredPlan) -> PlanRecord | None:
        """Store what an operator wants; None if another version came first. Raises: EtcdError."""
        plan = change.over(stored, self._fleet.policy.threshold_tokens)
        return await write_plan(self._etcd, self._deployment, plan, over=stored)

    def describe(self) -> dict[str, Any]:
        """Return what is known and proposed as JSON values."""
        demand = self.demand.seen(at_s=time.time())
        seen = self.stages()
        return {
            "leader": self._election.leader,
            "is_leader": self._election.is_leader,
            "problem": self._problem,
            "converting": self.conversions.waiting,
            "proposal": asdict(self.proposal) if self.proposal else None,
            "bottleneck": seen.bottleneck,
            "stages": asdict(seen),
            "demand": None
            if demand is None
            else {
                "requests": round(demand.requests),
                "rate_per_s": round(demand.rate_per_s, 4),
                "mean_uncached_tokens": round(demand.mean_tokens, 1),
                "output_tokens": round(demand.output_tokens, 1),
            },
        }


class PlanChange:
    """What an operator wants of the plan; what is not said stays as it is."""

    def __init__(
        self,
        *,
        threshold_tokens: int | None,
        roles: Mapping[str, RoleCounts],
        pinned: bool | None,
        why: str,
        by: str,
    ) -> None:
        self._threshold_tokens = threshold_tokens
        self._roles = roles
        self._pinned = pinned
        self._why = why
        self._by = by

    def over(self, stored: StoredPlan, in_force: int) -> PlanRecord:
        """Return the plan that this makes of what is stored; `in_force` is the threshold now."""
        before = stored.plan or PlanRecord(0, in_force)
        given = self._threshold_tokens
        roles = {**before.roles, **self._roles}
        at_s = time.time()
        return replace(
            before,
            version=stored.version + 1,
            threshold_tokens=in_force if given is None else given,
            roles=roles,
            by=self._by,
            why=self._why or "manual",
            at_s=at_s,
            converted_at_s=at_s if roles != before.roles else before.converted_at_s,
            pinned=before.pinned if self._pinned is None else self._pinned,
            lambda_before=0.0,
            lambda_after=0.0,
        )
